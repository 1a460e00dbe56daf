"""A version that can be run, and the model that it belongs to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mcp2026.api.serving import ServedVersion, ServingConfig
from mcp2026.runtime.batching.lanes import Lane
from mcp2026.runtime.batching.policy import next_padded_size
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.execution.tensor_cache import Arena, Shapes, TensorCache
from mcp2026.runtime.metrics.runtime_metrics import VersionMetrics
from mcp2026.runtime.model.file_state import FileState
from mcp2026.runtime.model.signature import Signature
from mcp2026.runtime.model.traffic import TrafficTable


class LoadedVersion:
    """One version: session, signature, buffers, and its counters in this process."""

    def __init__(
        self,
        config: ServingConfig,
        served: ServedVersion,
        session: Any,
        signature: Signature,
        metrics: VersionMetrics,
        *,
        files: tuple[FileState, ...] | None = None,
        with_folder: bool = False,
    ) -> None:
        """Serve by `config`, all of it but its versions and its revision, which may change meanwhile."""
        self.config = config
        self.model = config.model
        self.version_id = served.version_id
        self.sha256 = served.sha256
        self.files = files
        """What it was loaded from; None if that cannot be told."""
        self.with_folder = with_folder
        """Files beside its own belong to it."""
        self.signature = signature
        self.metrics = metrics
        self.max_rows = rows_of_a_run(config) if signature.shared else None
        """Most rows of one execution, None if requests do not share one."""
        self.session = session
        self.bindable = all(spec.datatype != "BYTES" for spec in (*signature.inputs, *signature.outputs))
        """Its tensors can be memory of ours; text cannot."""
        self.lanes: dict[Shapes, Lane] = {}
        """Where its requests wait, by the shapes of their inputs; filled by the data plane."""
        capacity = self.max_rows and next_padded_size(config.execution.padded_batch_sizes, self.max_rows)
        # No bound method: a version that is referred to by what it owns stays until the collector comes.
        make_arena = partial(Arena, session, signature, capacity=capacity)
        self.tensors = TensorCache(make_arena, enabled=config.batching.tensor_cache)

    def run(self, binding: Any) -> None:
        """Execute what `binding` holds. Releases Python's lock while it computes."""
        self.session.run_with_iobinding(binding)


def rows_of_a_run(config: ServingConfig) -> int:
    """Return the most rows of one execution of a model whose requests share one."""
    limit = config.execution.max_rows
    return config.batching.max_batch_size if limit is None else max(1, limit)


@dataclass(frozen=True)
class ServedModel:
    """One revision of what is served. A new revision is a new object, taken between two requests."""

    config: ServingConfig
    versions: dict[str, LoadedVersion]
    traffic: TrafficTable
    metrics: VersionMetrics
    """Counts the requests that fail before their version is known."""
    labels: dict[str, str] = field(default_factory=dict)
    """Label to version id."""

    @property
    def name(self) -> str:
        """The model's name."""
        return self.config.model

    def version(self, version_id: str | None, sticky_key: bytes | None = None) -> LoadedVersion:
        """Return the version that a request asks for by id or label, or one by weight if it asks for none.

        By weight it is the next one or, with `sticky_key`, the one of all requests with that key.

        Raises:
            RequestError: there is no such version.

        """
        if version_id is None:
            chosen = self.traffic.choose() if sticky_key is None else self.traffic.choose_for(sticky_key)
            return self.versions[chosen]
        version = self.versions.get(version_id) or self.versions.get(self.labels.get(version_id, ""))
        if version is None:
            raise RequestError(
                ErrorCode.NOT_FOUND,
                f"model {self.name!r} has no version {version_id[:64]!r}",
                "version_id",
                ", ".join((*self.versions, *self.labels)),
            )
        return version


CountersOf = Callable[[str, str], VersionMetrics]
"""Model and version to this process's counters."""


def served_model(
    config: ServingConfig, versions: list[LoadedVersion], counters_of: CountersOf
) -> ServedModel:
    """Put loaded versions together as one revision."""
    return ServedModel(
        config,
        {version.version_id: version for version in versions},
        TrafficTable({version.version_id: version.weight for version in config.versions}),
        counters_of(config.model, ""),
        {label: version.version_id for version in config.versions for label in version.labels},
    )
