"""What both protocols do besides inference: models, statistics, shared memory, settings.

Answers are JSON documents; gRPC turns them into messages of the same names.
"""

from collections.abc import Callable
from typing import Any

from mcp2026.runtime.changes import (
    Change,
    LoadModel,
    RegisterRegion,
    RequestChange,
    UnloadModel,
    UnregisterRegion,
)
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics
from mcp2026.runtime.model.loaded import LoadedVersion, ServedModel
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.protocol.open_inference.documents import (
    Document,
    model_config,
    model_metadata,
    model_statistics,
    server_metadata,
)
from mcp2026.runtime.shared_memory.keys import file_name
from mcp2026.runtime.shared_memory.regions import SharedMemoryRegions

Changed = Callable[[RequestError | None], None]

TRACE_SETTINGS: Document = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}
"""Tracing by this protocol does not exist: it is off, whatever the rate."""

LOG_SETTINGS: Document = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}
"""Logging is set by the server's flags, not by its clients."""


class Administration:
    """The models and regions of this process, as clients see and change them."""

    def __init__(
        self,
        store: ModelStore,
        metrics: RuntimeMetrics,
        regions: SharedMemoryRegions,
        request_change: RequestChange,
        *,
        shared_memory: bool = True,
    ) -> None:
        """Take regions of clients if `shared_memory`."""
        self._store = store
        self._metrics = metrics
        self._regions = regions
        self._request_change = request_change
        self._shared_memory = shared_memory

    def server(self) -> Document:
        """Return what the server is and can do."""
        return server_metadata(shared_memory=self._shared_memory)

    def ready(self, name: str, version_id: str | None) -> bool:
        """Return whether a model, or one version of it, is served; false also if it is not known."""
        try:
            return self._store.ready(name, version_id)
        except RequestError:
            return False

    def metadata(self, name: str, version_id: str | None) -> Document:
        """Return the tensors of a model.

        Raises:
            RequestError: model or version is not served.

        """
        model = self._store.model(name)
        return model_metadata(model, _version(model, version_id))

    def config(self, name: str, version_id: str | None) -> Document:
        """Return the configuration of a model.

        Raises:
            RequestError: model or version is not served.

        """
        model = self._store.model(name)
        return model_config(model, _version(model, version_id))

    def statistics(self, name: str | None, version_id: str | None) -> Document:
        """Return the counters of one version, of all versions of a model, or of all models.

        Raises:
            RequestError: model or version is not served.

        """
        if name is None:
            versions = [version for model in self._store.models() for version in model.versions.values()]
        elif version_id is None:
            versions = list(self._store.model(name).versions.values())
        else:
            versions = [_version(self._store.model(name), version_id)]
        return {
            "model_stats": [
                model_statistics(version, self._metrics.statistics(version.model, version.version_id))
                for version in versions
            ]
        }

    def index(self, *, ready_only: bool) -> list[Document]:
        """Return every model that is known, or those that are served."""
        return [
            {"name": entry.name, "version": entry.version, "state": entry.state, "reason": entry.reason}
            for entry in self._store.index()
            if not ready_only or entry.state == "READY"
        ]

    def load(self, name: str, parameters: Any, changed: Changed) -> None:
        """Load a model again or for the first time; `changed` is told when every process has.

        Raises:
            RequestError: the request brings a configuration or files of its own.

        """
        if parameters:
            raise _unsupported(
                "a configuration or files in the request are not taken: change the repository, then load",
                "parameters",
            )
        self._change(LoadModel(name), changed)

    def unload(self, name: str, changed: Changed) -> None:
        """Stop serving a model; `changed` is told when every process has."""
        self._change(UnloadModel(name), changed)

    def register(self, name: str, key: str, offset: int, byte_size: int, changed: Changed) -> None:
        """Make a client's shared memory known; `changed` is told when every process has.

        Raises:
            RequestError: the key is not allowed, a number is out of range, or this server takes no regions.

        """
        if not self._shared_memory:
            raise _unsupported("this server was started with --no-shared-memory", "systemsharedmemory")
        file_name(key)
        for field, value in (("offset", offset), ("byte_size", byte_size)):
            if not 0 <= value < 2**63:
                raise RequestError(
                    ErrorCode.INVALID_ARGUMENT, f"{field}: {value} is out of range", field, "0 to 2^63 - 1"
                )
        self._change(RegisterRegion(name, key, offset, byte_size), changed)

    def unregister(self, name: str | None, changed: Changed) -> None:
        """Forget a region, or all; `changed` is told when every process has."""
        self._change(UnregisterRegion(name), changed)

    def regions(self, name: str | None) -> list[Document]:
        """Return a region, or all.

        Raises:
            RequestError: the region is not registered.

        """
        found = self._regions.all() if name is None else (self._regions.get(name),)
        return [
            {"name": region.name, "key": region.key, "offset": region.offset, "byte_size": region.byte_size}
            for region in found
        ]

    def cuda_regions(self, name: str | None) -> list[Document]:
        """Return the CUDA regions: there are none.

        Raises:
            RequestError: one is asked for by name.

        """
        if name is not None:
            raise RequestError(ErrorCode.NOT_FOUND, f"no CUDA shared memory region {name[:64]!r}", "name")
        return []

    def register_cuda(self) -> None:
        """Refuse a region on a GPU.

        Raises:
            RequestError: always.

        """
        raise _unsupported("CUDA shared memory is not served; use system shared memory", "cudasharedmemory")

    def trace_settings(self, changes: Any, name: str | None) -> Document:
        """Return the trace settings, which cannot be changed.

        Raises:
            RequestError: `changes` holds any, or the model is not served.

        """
        if name:
            self._store.model(name)
        if changes:
            raise _unsupported("tracing is not set by this protocol", "trace/setting")
        return TRACE_SETTINGS

    def log_settings(self, changes: Any) -> Document:
        """Return the log settings, which cannot be changed.

        Raises:
            RequestError: `changes` holds any.

        """
        if changes:
            raise _unsupported("logging is set by --log-level and --log-format", "logging")
        return LOG_SETTINGS

    def _change(self, change: Change, changed: Changed) -> None:
        self._request_change(change, changed)


def _version(model: ServedModel, version_id: str | None) -> LoadedVersion:
    """Return the version asked for, else the newest: questions must not count as traffic."""
    if version_id is not None:
        return model.version(version_id)
    return model.versions[list(model.versions)[-1]]


def _unsupported(problem: str, field: str) -> RequestError:
    return RequestError(ErrorCode.UNSUPPORTED, problem, field)
