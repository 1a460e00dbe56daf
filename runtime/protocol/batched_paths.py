"""The paths whose requests may share a run, and so negotiate about batching."""

from mcp2026.runtime.protocol.open_inference.grpc_service import SERVICE
from mcp2026.runtime.protocol.open_inference.paths import PathTable, Resource
from mcp2026.runtime.protocol.rest import INFER_PATH

NATIVE_CALL = "/mcp2026.v1.InferenceService/Infer"

_OWN = frozenset((INFER_PATH, NATIVE_CALL, SERVICE + "ModelInfer", SERVICE + "ModelStreamInfer"))


class BatchedPaths:
    """Tells those paths from all others, of HTTP and of gRPC."""

    def __init__(self) -> None:
        self._table = PathTable()

    def __call__(self, path: str) -> bool:
        """Return whether requests for `path` may share a run."""
        if path in _OWN:
            return True
        target = self._table.find(path)
        return target is not None and target.resource is Resource.INFER
