"""One stream: what each side may still send, and who takes what comes."""

from collections import deque
from typing import TYPE_CHECKING, Protocol

import msgspec

from mcp2026.runtime.protocol.http2 import header_encoder
from mcp2026.runtime.protocol.http2.errors import Http2Code
from mcp2026.runtime.protocol.http2.header_decoder import Field

if TYPE_CHECKING:
    from mcp2026.runtime.protocol.http2.core import Http2Core


class Consumer(Protocol):
    """Takes what a client sends on one stream. Never raises."""

    @property
    def awaiting_since(self) -> float | None:
        """Since when the client owes the rest of something, in s; None if it owes nothing."""

    def data(self, data: bytes) -> None:
        """The body goes on. Never empty."""

    def ended(self) -> None:
        """The body is complete."""

    def cancelled(self) -> None:
        """The client has gone, or broke the protocol. Nothing can be sent any more."""

    def too_slow(self) -> None:
        """The client owed bytes for too long; the stream is reset after what is answered now."""

    def crowded(self) -> None:
        """All connections together hold too much of unfinished bodies: let go of this one."""


class _Nobody:
    """Takes what comes on a stream that is closed: nothing."""

    awaiting_since = None

    def data(self, data: bytes) -> None:
        pass

    def ended(self) -> None:
        pass

    def cancelled(self) -> None:
        pass

    def too_slow(self) -> None:
        pass

    def crowded(self) -> None:
        pass


NOBODY: Consumer = _Nobody()


class Stream(msgspec.Struct, eq=False):
    """One request and its answer. Sending does nothing once the stream is closed."""

    core: "Http2Core"
    id: int
    send_window: int
    receive_window: int
    receive_target: int
    opened_at: float
    """When the stream began, in s."""
    moved_at: float
    """When last something came, or went after waiting for a window, in s."""
    remote_open: bool = True
    local_open: bool = True
    consumer: Consumer = NOBODY
    """Only while the stream is open: the two know each other, and shall be freed at once."""
    unwanted: bool = False
    """The rest of the body is not needed: no more of it is granted."""
    reset_at_end: bool = False
    length_left: int | None = None
    """Of the body, if its length was said."""
    held: int = 0
    """Bytes that the consumer keeps of an unfinished body."""
    pending: deque[bytes | memoryview] | None = None
    """What waits for the client's windows, in order."""
    pending_bytes: int = 0
    end_block: bytes | None = None
    pending_end: bool = False

    def inform(self, status: int, fields: tuple[Field, ...] = ()) -> None:
        """Send an interim response (1xx); allowed until the response begins."""
        if self.local_open:
            block = header_encoder.status(status) + header_encoder.block(fields)
            self.core.outbox.headers(self, block, end=False)

    def respond(self, block: bytes, body: bytes, trailers: bytes | None = None) -> None:
        """Send a whole response: header block, body, and the header block of trailers if there is one."""
        if self.local_open:
            self.core.outbox.respond(self, block, body, trailers)

    def start(self, block: bytes, *, end: bool = False) -> None:
        """Send the header block of a response that goes on, or of one that is nothing else."""
        if self.local_open:
            self.core.outbox.headers(self, block, end=end)

    def send(self, data: bytes) -> None:
        """Send a piece of the body, or keep it until the client's windows allow."""
        if self.local_open and not self.pending_end:
            self.core.outbox.data(self, data, None, end=False)

    def finish(self, trailers: bytes | None = None) -> None:
        """End the response, after trailers if there are some."""
        if self.local_open and not self.pending_end:
            self.core.outbox.data(self, b"", trailers, end=True)

    def reset(self, code: Http2Code) -> None:
        """End the stream in both directions; what waits is dropped."""
        self.core.reset(self, code)

    def ignore_rest(self) -> None:
        """Grant no more of the body: it is not needed, the response says all."""
        self.unwanted = True

    def stop_receiving(self) -> None:
        """Reset the stream, when the response is complete, if the body is not by then (RFC 9113 §8.1)."""
        self.core.stop_receiving(self)

    def release(self, size: int) -> None:
        """Tell that `size` received bytes are not kept any more, though the stream goes on."""
        self.core.inbox.release(self, size)
