"""One connection of HTTP/1.1, on h11."""

from collections.abc import Iterable, Mapping

import h11

from mcp2026.api.names import BATCH_CAPABLE_HEADER, BATCHING_HEADER
from mcp2026.client.addresses import Address
from mcp2026.client.datatypes import Buffer
from mcp2026.client.errors import ConnectionFailedError, ProtocolError, Retry
from mcp2026.client.exchange import HttpRequest, HttpResponse, coalesced

_MAX_HEAD_BYTES = 65_536


class Http1Wire:
    """Takes one request after another; each must be answered before the next one."""

    def __init__(self, address: Address, max_answer_bytes: int) -> None:
        self._address = address
        self._max_answer_bytes = max_answer_bytes
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._response: HttpResponse | None = None
        self._hinted = ""
        self._begun = False

    @property
    def reusable(self) -> bool:
        """Whether the connection can take another request; not if bytes came that nobody asked for."""
        connection = self._connection
        at_rest = connection.our_state is h11.IDLE and connection.their_state is h11.IDLE
        return at_rest and connection.trailing_data == (b"", False)

    def ask(self, request: HttpRequest, batch_capable: str = "") -> list[Buffer]:
        """Return the bytes of `request`; `batch_capable` is its header if it may share a batch."""
        headers = [("host", self._address.authority), *request.headers]
        if request.method not in ("GET", "HEAD"):
            headers.append(("content-length", str(request.body_bytes)))
        if request.batchable and batch_capable:
            headers.append((BATCH_CAPABLE_HEADER, batch_capable))
        head = h11.Request(method=request.method, target=self._address.prefix + request.path, headers=headers)
        parts: list[Buffer] = [self._connection.send(head) or b""]
        for part in request.body:
            # h11 counts what it is given and gives it back; a view stays one.
            # h11 passes any buffer through, but its types say bytes.
            parts += self._connection.send_with_data_passthrough(h11.Data(data=part)) or ()  # type: ignore[arg-type]
        self._connection.send(h11.EndOfMessage())
        self._response, self._hinted, self._begun = None, "", False
        return coalesced(parts)

    def receive(self, data: bytes) -> HttpResponse | None:
        """Take what came, nothing if the other side closed; return the response when it is whole.

        Raises:
            ConnectionFailedError: the other side closed before.
            ProtocolError: what came is not HTTP, or too much.

        """
        self._begun = self._begun or bool(data)
        try:
            self._connection.receive_data(data)
            while True:
                event = self._connection.next_event()
                if event is h11.NEED_DATA:
                    return None
                if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                    raise self._broken()
                if isinstance(event, h11.EndOfMessage):
                    return self._end()
                self._take(event)
        except h11.RemoteProtocolError as error:
            if not data:
                raise self._broken() from error
            raise ProtocolError(f"the answer is not HTTP/1.1: {error}") from error

    def lost(self, problem: str) -> ConnectionFailedError:
        """Return the error for a request whose connection broke."""
        return ConnectionFailedError(problem, Retry.NEVER if self._begun else Retry.IF_IDEMPOTENT)

    def _take(self, event: object) -> None:
        if isinstance(event, h11.InformationalResponse):
            self._hinted = _headers(event.headers).get(BATCHING_HEADER, self._hinted)
        elif isinstance(event, h11.Response):
            headers = _headers(event.headers)
            check_head(headers, int(headers.get("content-length", "0")), self._max_answer_bytes)
            self._response = HttpResponse(event.status_code, headers, hinted_batching=self._hinted)
        elif isinstance(event, h11.Data) and self._response is not None:
            check_size(len(self._response.body) + len(event.data), self._max_answer_bytes)
            self._response.body += event.data

    def _end(self) -> HttpResponse:
        response = self._response
        assert response is not None
        self._response = None
        if self._connection.our_state is h11.DONE and self._connection.their_state is h11.DONE:
            self._connection.start_next_cycle()
        return response

    def _broken(self) -> ConnectionFailedError:
        return self.lost("the server closed the connection before it had answered")


def check_head(headers: Mapping[str, str], content_length: int, limit: int) -> None:
    """Raise unless the body after these headers can be read.

    Raises:
        ProtocolError: it will be too large, or is compressed.

    """
    check_size(content_length, limit)
    if headers.get("content-encoding", "identity") != "identity":
        raise ProtocolError("the answer is compressed, which was not asked for")


def check_size(size: int, limit: int) -> None:
    """Raise unless an answer of `size` bytes is wanted.

    Raises:
        ProtocolError: it is larger.

    """
    if size > limit:
        raise ProtocolError(f"the answer has more than max_answer_bytes={limit} bytes")


def _headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in pairs}
