"""A version that can be run, and the set of versions that a process serves."""

from dataclasses import dataclass
from typing import Any

from mcp2026.api.serving import Batching, ServedVersion, ServingConfig
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.execution.tensor_cache import Arena, Shapes, TensorCache
from mcp2026.runtime.model.signature import Signature
from mcp2026.runtime.model.traffic import TrafficTable


class LoadedVersion:
    """One version: session, signature and buffers."""

    def __init__(self, served: ServedVersion, session: Any, signature: Signature, batching: Batching) -> None:
        self.version_id = served.version_id
        self.weight = served.weight
        self.signature = signature
        self._session = session
        self._capacity = batching.max_batch_size if signature.shared else None
        self.tensors = TensorCache(self._make_arena, enabled=batching.tensor_cache)

    def _make_arena(self, shapes: Shapes) -> Arena:
        return Arena(self._session, self.signature, shapes, self._capacity)

    def run(self, binding: Any) -> None:
        """Execute what `binding` holds. Releases Python's lock while it computes."""
        self._session.run_with_iobinding(binding)


@dataclass(frozen=True)
class ServedModel:
    """One revision of what is served. A new revision is a new object, taken between two requests."""

    name: str
    revision: int
    batching: Batching
    versions: dict[str, LoadedVersion]
    traffic: TrafficTable

    def version(self, version_id: str | None) -> LoadedVersion:
        """Return the version that a request asks for, or the next one by weight if it asks for none.

        Raises:
            RequestError: there is no such version.

        """
        if version_id is None:
            return self.versions[self.traffic.choose()]
        version = self.versions.get(version_id)
        if version is None:
            raise RequestError(
                ErrorCode.NOT_FOUND,
                f"model {self.name!r} has no version {version_id[:64]!r}",
                "version_id",
                ", ".join(self.versions),
            )
        return version


def served_model(config: ServingConfig, versions: list[LoadedVersion]) -> ServedModel:
    """Put loaded versions together as one revision."""
    return ServedModel(
        config.model,
        config.revision,
        config.batching,
        {version.version_id: version for version in versions},
        TrafficTable({version.version_id: version.weight for version in config.versions}),
    )
