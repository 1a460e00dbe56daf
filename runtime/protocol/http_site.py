"""Everything that one HTTP port serves: our own API, and the Open Inference Protocol below /v2."""

from typing import Protocol

from mcp2026.runtime.protocol.context_headers import in_trace_of
from mcp2026.runtime.protocol.exchange import Application, Cancel, Handler, RequestHead, Respond, Response


class Mounted(Protocol):
    """An API that has some paths for itself."""

    def serves(self, path: str) -> bool:
        """Return whether `path` is one of them."""

    def admit(self, head: RequestHead) -> Response | None:
        """Return a refusal that does not need the body, or None to go on reading."""

    def begin(self, head: RequestHead, body: bytes, respond: Respond) -> Cancel | None:
        """Start serving a whole request. Never raises."""


class Own(Application, Protocol):
    """The API that has all other paths."""

    def handler(self, head: RequestHead) -> Handler:
        """Return what serves requests with `head`."""


class HttpSite:
    """An application with other APIs mounted in it."""

    def __init__(self, own: Own, *mounted: Mounted) -> None:
        """Let each of `mounted` serve its paths, the first that has one, and `own` all others."""
        self._own = own
        self._mounted = mounted

    @property
    def closing(self) -> bool:
        """Connections should end with their next response."""
        return self._own.closing

    def admit(self, head: RequestHead) -> Response | None:
        """Let the API that the path belongs to decide."""
        api = self._mounted_at(head.path) or self._own
        refusal = api.admit(head)
        return None if refusal is None else in_trace_of(head.headers, refusal)

    def begin(self, head: RequestHead, body: bytes, respond: Respond) -> Cancel | None:
        """Let the API that the path belongs to serve the request."""
        handler = head.handler
        if handler is None:
            mounted = self._mounted_at(head.path)
            handler = head.handler = self._own.handler(head) if mounted is None else mounted.begin
        return handler(head, body, respond)

    def _mounted_at(self, path: str) -> Mounted | None:
        for api in self._mounted:
            if api.serves(path):
                return api
        return None

    def protocol_error(self, status: int, message: str, allowed: str | None = None) -> Response:
        """Return the response for a request that the protocol itself refuses."""
        return self._own.protocol_error(status, message, allowed)
