"""The standard health service of gRPC: Check and Watch.

Contract: https://github.com/grpc/grpc/blob/master/doc/health-checking.md and health.proto there. Its two
messages have one field each, so they are read and written here by hand.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.runtime.health import Health, Phase
from mcp2026.runtime.protocol.exchange import Cancel
from mcp2026.runtime.protocol.grpc.service import (
    CallHead,
    Inbound,
    Outbound,
    Reply,
    Respond,
    StreamMethod,
    UnaryMethod,
)

SERVICE = "grpc.health.v1.Health"


class ServingStatus(IntEnum):
    """`grpc.health.v1.HealthCheckResponse.ServingStatus`."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


class HealthService:
    """Tells whether this worker serves: as a whole (the empty name), and each service of the port."""

    def __init__(self, health: Health, services: Iterable[str] = ()) -> None:
        self._health = health
        self._known = frozenset(("", SERVICE, *services))
        self._watches: set[_Watch] = set()
        health.watch(self._changed)

    @property
    def closing(self) -> bool:
        """Connections should end when their calls are done."""
        return self._health.leaving

    def unary(self, path: str) -> UnaryMethod | None:
        """Return Check."""
        return self._check if path == f"/{SERVICE}/Check" else None

    def streaming(self, path: str) -> StreamMethod | None:
        """Return Watch."""
        return self._watch if path == f"/{SERVICE}/Watch" else None

    def _check(self, _head: CallHead, message: bytes, respond: Respond) -> Cancel | None:
        try:
            name = read_request(message)
        except ValueError as error:
            respond(Reply(code=GrpcCode.INVALID_ARGUMENT, detail=f"not a HealthCheckRequest: {error}"))
            return None
        if name in self._known:
            respond(Reply(response(self._status())))
        else:
            respond(Reply(code=GrpcCode.NOT_FOUND, detail=f"service: there is no {name[:200]!r}"))
        return None

    def _watch(self, _head: CallHead, outbound: Outbound) -> Inbound:
        return _Watch(outbound, self._status_of, self._watches)

    def _status(self) -> ServingStatus:
        return ServingStatus.SERVING if self._health.ready else ServingStatus.NOT_SERVING

    def _status_of(self, name: str) -> ServingStatus:
        return self._status() if name in self._known else ServingStatus.SERVICE_UNKNOWN

    def _changed(self, phase: Phase) -> None:
        for watch in list(self._watches):
            watch.tell()
            if phase is Phase.DRAINING:
                watch.end()


class _Watch:
    """One caller that is told of every change."""

    def __init__(
        self, outbound: Outbound, status_of: Callable[[str], ServingStatus], watches: set["_Watch"]
    ) -> None:
        self._outbound = outbound
        self._status_of = status_of
        self._watches = watches
        self._name: str | None = None
        self._told: ServingStatus | None = None

    def message(self, message: bytes) -> None:
        """Begin to watch what the request names."""
        if self._name is not None:
            self._finish(GrpcCode.UNIMPLEMENTED, "more than one request to Watch")
            return
        try:
            self._name = read_request(message)
        except ValueError as error:
            self._finish(GrpcCode.INVALID_ARGUMENT, f"not a HealthCheckRequest: {error}")
            return
        self._watches.add(self)
        self.tell()

    def half_closed(self) -> None:
        """The request is complete."""
        if self._name is None:
            self._finish(GrpcCode.UNIMPLEMENTED, "no request to Watch")

    def cancelled(self) -> None:
        """Nobody watches any more."""
        self._watches.discard(self)

    def tell(self) -> None:
        """Send the status if it is not the one that was sent last."""
        status = self._status_of(self._name or "")
        if status is not self._told:
            self._told = status
            self._outbound.send(response(status))

    def end(self) -> None:
        """Let the caller look for another server."""
        self._finish(GrpcCode.UNAVAILABLE, "the server is draining")

    def _finish(self, code: GrpcCode, detail: str) -> None:
        self._watches.discard(self)
        self._outbound.finish(code, detail)


def response(status: ServingStatus) -> bytes:
    """Return a HealthCheckResponse: field 1, an enum; its default is not sent."""
    return bytes((0x08, status)) if status else b""


def read_request(message: bytes) -> str:
    """Return field 1, a string, of a HealthCheckRequest; other fields are skipped.

    Raises ValueError if the bytes are no protobuf message.
    """
    name = ""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == 0:
            _, position = _varint(message, position)
            continue
        if kind == 2:
            size, position = _varint(message, position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        end = position + size
        if end > len(message):
            raise ValueError("it is cut off")
        if tag == 0x0A:
            name = message[position:end].decode()
        position = end
    return name


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(message) or shift > 63:
            raise ValueError("a number is cut off")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
