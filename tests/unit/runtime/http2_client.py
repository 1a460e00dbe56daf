"""The bytes of an HTTP/2 client, its header blocks made by the hpack library, and a core that takes them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from hpack import Decoder, Encoder

from mcp2026.runtime.protocol.http2 import frames, header_encoder
from mcp2026.runtime.protocol.http2.core import Http2Core
from mcp2026.runtime.protocol.http2.errors import HeadersTooLargeError
from mcp2026.runtime.protocol.http2.limits import Http2Limits
from mcp2026.runtime.protocol.http2.request_headers import RequestHeaders
from mcp2026.runtime.protocol.http2.stream import Consumer, Stream

Field = tuple[bytes, bytes]

GET: tuple[Field, ...] = (
    (b":method", b"GET"),
    (b":scheme", b"http"),
    (b":path", b"/a?b=c"),
    (b":authority", b"test"),
)
POST: tuple[Field, ...] = ((b":method", b"POST"), *GET[1:])
START = frames.PREFACE + frames.settings_frame({})


def block(fields: Iterable[Field]) -> bytes:
    """Return a header block that leaves the dynamic table alone."""
    return header_encoder.block(fields)


def headers(
    stream_id: int, fields: Iterable[Field] = GET, *, end: bool = True, encoder: Encoder | None = None
) -> bytes:
    """Return a HEADERS frame."""
    payload = encoder.encode(list(fields)) if encoder is not None else block(fields)
    flags = frames.END_HEADERS | (frames.END_STREAM if end else 0)
    return frames.frame(frames.HEADERS, flags, stream_id, payload)


def data(stream_id: int, content: bytes, *, end: bool = False) -> bytes:
    """Return a DATA frame."""
    return frames.frame(frames.DATA, frames.END_STREAM if end else 0, stream_id, content)


@dataclass(frozen=True)
class Frame:
    """A frame that the server sent."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes

    @property
    def code(self) -> int:
        """The error code of RST_STREAM or GOAWAY."""
        return int.from_bytes(
            self.payload[-4:] if self.kind == frames.RST_STREAM else self.payload[4:8], "big"
        )


def split(received: bytes) -> list[Frame]:
    """Return the frames in what a server sent."""
    found = []
    while received:
        word, flags, stream_id = frames.HEAD.unpack_from(received)
        length = word >> 8
        found.append(Frame(word & 0xFF, flags, stream_id, received[9 : 9 + length]))
        assert len(found[-1].payload) == length
        received = received[9 + length :]
    return found


@dataclass
class Recorder:
    """A consumer that writes down what happens to its stream."""

    stream: Stream
    request: RequestHeaders | HeadersTooLargeError
    body: bytearray = field(default_factory=bytearray)
    events: list[str] = field(default_factory=list)
    awaiting_since: float | None = None

    def data(self, data: bytes) -> None:
        assert data
        self.body += data

    def ended(self) -> None:
        self.events.append("ended")

    def cancelled(self) -> None:
        self.events.append("cancelled")

    def too_slow(self) -> None:
        self.events.append("too slow")

    def state(self) -> tuple[object, ...]:
        head = self.request.head if isinstance(self.request, RequestHeaders) else None
        return (self.stream.id, head, bytes(self.body), tuple(self.events))


class Server:
    """A core whose streams are recorded; frames that it sent come back decoded."""

    def __init__(
        self,
        limits: Http2Limits | None = None,
        *,
        started: bool = True,
        consume: Callable[[Stream, RequestHeaders], Consumer] | None = None,
        **more: object,
    ) -> None:
        self._consume = consume
        self.streams: list[Recorder] = []
        self.wakes = 0
        self.now = 0.0
        self.core = Http2Core(limits or Http2Limits(), self._accept, self._wake, self.now, **more)  # type: ignore[arg-type]
        self._decoder = Decoder()
        self.core.start()
        if started:
            self.send(START)

    def _accept(
        self, stream: Stream, request: RequestHeaders | HeadersTooLargeError, _ends: bool
    ) -> Consumer:
        if self._consume is not None:
            assert isinstance(request, RequestHeaders)
            return self._consume(stream, request)
        self.streams.append(Recorder(stream, request))
        return self.streams[-1]

    def _wake(self) -> None:
        self.wakes += 1

    def send(self, *pieces: bytes) -> list[Frame]:
        """Let the core receive the pieces, and return the frames that it answers."""
        for piece in pieces:
            self.core.receive(piece, self.now)
        return self.sent()

    def sent(self) -> list[Frame]:
        """Return the frames that the core has to write."""
        received = b""
        while piece := self.core.outbox.take():
            received += piece
        return split(received)

    def fields(self, frame: Frame) -> list[Field]:
        """Return the fields of a HEADERS frame of the server."""
        assert frame.kind == frames.HEADERS
        return [(bytes(name), bytes(value)) for name, value in self._decoder.decode(frame.payload, raw=True)]

    def states(self) -> list[tuple[object, ...]]:
        return [stream.state() for stream in self.streams]


def of_kind(found: Sequence[Frame], kind: int) -> list[Frame]:
    """Return the frames of one type."""
    return [frame for frame in found if frame.kind == kind]
