"""What parent and workers say to each other: one JSON object a line, over a socket pair."""

import asyncio

import msgspec

from mcp2026.runtime.settings import Settings


class Start(msgspec.Struct, tag="start"):
    """First words to a worker."""

    settings: Settings
    slot: int
    """Its place among the workers, and its row in the metrics."""
    listeners: list[int]
    """Descriptors of its bound sockets."""
    metrics: int
    """Descriptor of the metrics' shared memory."""
    listen_first: bool
    """True at the start of the server, so that /readyz can say that it loads. A worker that replaces
    another loads first: a connection that it took meanwhile would only have to wait."""


class Ready(msgspec.Struct, tag="ready"):
    """All workers have loaded: be ready."""


class LameDuck(msgspec.Struct, tag="lame_duck"):
    """Be unready, and serve on."""


class Drain(msgspec.Struct, tag="drain"):
    """Answer what was accepted, then exit."""


class Loaded(msgspec.Struct, tag="loaded"):
    """The worker has loaded all versions."""


class Failed(msgspec.Struct, tag="failed"):
    """The worker cannot serve, and exits; the text is for the user."""

    message: str


ToWorker = Start | Ready | LameDuck | Drain
ToParent = Loaded | Failed

_TO_WORKER: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)
_TO_PARENT: msgspec.json.Decoder[ToParent] = msgspec.json.Decoder(ToParent)


def send(writer: asyncio.StreamWriter, message: ToWorker | ToParent) -> None:
    """Write `message`; a peer that has gone is not an error here, its exit is seen elsewhere."""
    if not writer.is_closing():
        writer.write(msgspec.json.encode(message) + b"\n")


async def receive_from_parent(reader: asyncio.StreamReader) -> ToWorker | None:
    """Return the next message to a worker, None when the parent has gone."""
    line = await _line(reader)
    return _TO_WORKER.decode(line) if line else None


async def receive_from_worker(reader: asyncio.StreamReader) -> ToParent | None:
    """Return the next message to the parent, None when the worker has gone."""
    line = await _line(reader)
    return _TO_PARENT.decode(line) if line else None


async def _line(reader: asyncio.StreamReader) -> bytes | None:
    try:
        return await reader.readuntil(b"\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
