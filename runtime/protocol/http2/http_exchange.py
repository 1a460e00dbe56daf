"""One HTTP request of a stream for the application, and its response."""

from mcp2026.runtime.negotiation.terms import Terms
from mcp2026.runtime.protocol.connections import CROWDED, ConnectionLimits, Connections
from mcp2026.runtime.protocol.exchange import Application, Cancel, Response
from mcp2026.runtime.protocol.http2 import header_encoder
from mcp2026.runtime.protocol.http2.errors import HeadersTooLargeError, Http2Code
from mcp2026.runtime.protocol.http2.request_headers import RequestHeaders
from mcp2026.runtime.protocol.http2.stream import Stream


class HttpExchange:
    """Collects a body within the limits, hands the request over, and sends what comes back."""

    __slots__ = (
        "_application",
        "_body",
        "_cancel",
        "_connections",
        "_head_only",
        "_limits",
        "_request",
        "_stream",
        "_terms",
        "responded",
    )

    def __init__(
        self,
        application: Application,
        limits: ConnectionLimits,
        connections: Connections,
        stream: Stream,
        request: RequestHeaders | HeadersTooLargeError,
        ends: bool,
    ) -> None:
        self._application = application
        self._limits = limits
        self._connections = connections
        self._stream = stream
        self._body: bytes | bytearray = b""
        self._cancel: Cancel | None = None
        self._head_only = False
        self._terms: Terms | None = None
        self.responded = False
        if isinstance(request, HeadersTooLargeError):
            self._refuse(application.protocol_error(431, str(request)))
            return
        self._request = request
        self._head_only = request.head.method == "HEAD"
        length = request.content_length
        refusal = application.admit(request.head)
        if refusal is not None:
            self._refuse(refusal)
        elif length is not None and length > self._limits.max_body_bytes:
            self._refuse(self._too_large())
        else:
            if request.expects_continue and not ends:
                stream.inform(100)
            if request.head.batching is not None:
                self._terms = request.head.batching
                stream.inform(103, (self._terms.field,))

    @property
    def awaiting_since(self) -> float | None:
        """Since when the client owes the rest of its body."""
        return self._stream.opened_at if self._stream.remote_open else None

    def data(self, data: bytes) -> None:
        """Collect a piece of the body."""
        if self.responded:
            self._stream.release(len(data))
        elif not self._body:
            self._body = data
            self._check_size()
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data
            self._check_size()

    def ended(self) -> None:
        """Hand the whole request over."""
        if self.responded:
            return
        body, self._body = self._body, b""
        if isinstance(body, bytearray):
            body = bytes(body)
        cancel = self._application.begin(self._request.head, body, self.respond)
        if not self.responded:
            self._cancel = cancel

    def respond(self, response: Response) -> None:
        """Send the response."""
        if self.responded:
            return
        self.responded = True
        self._cancel = None
        body, headers = response.body, response.headers
        if self._terms is not None:
            headers = (*headers, self._terms.field)
        encoder = header_encoder
        block = (
            encoder.response_start(response.status, response.content_type, headers)
            + encoder.content_length(len(body))
            + encoder.date(self._connections.date_line)
        )
        self._stream.respond(block, b"" if self._head_only else body)

    def cancelled(self) -> None:
        """Tell the application that nobody waits any more."""
        self._body = b""
        if not self.responded:
            self.responded = True
            cancel, self._cancel = self._cancel, None
            if cancel is not None:
                cancel()

    def too_slow(self) -> None:
        """Answer a client whose body does not come."""
        if self.responded:
            self._stream.reset(Http2Code.CANCEL if self._stream.local_open else Http2Code.NO_ERROR)
        else:
            self._body = b""
            self.respond(self._application.protocol_error(408, *self._limits.too_slow))
            self._stream.stop_receiving()

    def crowded(self) -> None:
        """Refuse a body for which there is no room."""
        if not self.responded:
            self._refuse(self._application.protocol_error(503, CROWDED))

    def _check_size(self) -> None:
        if len(self._body) > self._limits.max_body_bytes:
            self._refuse(self._too_large())

    def _refuse(self, response: Response) -> None:
        """Answer before the body is here.

        What the client may send already is dropped. The stream is not reset at once: clients such as curl
        fail if that happens while they send, and do not show the response.
        """
        self._body = b""
        self._stream.release(self._stream.held)
        self._stream.ignore_rest()
        self.respond(response)

    def _too_large(self) -> Response:
        return self._application.protocol_error(413, *self._limits.too_large)
