"""Several services on one port."""

from collections.abc import Mapping

from mcp2026.runtime.protocol.grpc.service import GrpcService, StreamMethod, UnaryMethod


class GrpcRouter:
    """Finds the service by its name, the part of a call's path before the last slash."""

    def __init__(self, services: Mapping[str, GrpcService]) -> None:
        """Join `services`, each under its full name (`package.Service`)."""
        self._services = dict(services)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all services."""
        return tuple(self._services)

    @property
    def closing(self) -> bool:
        """One of the services wants connections to end."""
        return any(service.closing for service in self._services.values())

    def unary(self, path: str) -> UnaryMethod | None:
        """Return the unary method at `path`."""
        service = self._services.get(path[1 : path.rfind("/")])
        return None if service is None else service.unary(path)

    def streaming(self, path: str) -> StreamMethod | None:
        """Return the streaming method at `path`."""
        service = self._services.get(path[1 : path.rfind("/")])
        return None if service is None else service.streaming(path)
