"""What parent and workers say to each other: one JSON object a line, over a socket pair."""

import asyncio

import msgspec

from mcp2026.api.serving import ServingConfig
from mcp2026.runtime.changes import Change, RegisterRegion, UnloadModel, UnregisterRegion, VersionChange
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.settings import Settings


class Problem(msgspec.Struct, frozen=True):
    """A `RequestError` on its way between processes."""

    code: ErrorCode
    message: str
    field: str | None = None
    allowed: str | None = None
    rule: str | None = None

    def error(self) -> RequestError:
        """Return the error that this tells of."""
        return RequestError(self.code, self.message, self.field, self.allowed, self.rule)


def problem_of(error: RequestError) -> Problem:
    """Return what the other process is told of `error`."""
    return Problem(error.code, error.message, error.field, error.allowed, error.rule)


class ServeModel(msgspec.Struct, frozen=True, tag="serve_model"):
    """Serve a model, in place of what was served under its name."""

    config: ServingConfig
    may_differ: bool = False
    """Its inputs and outputs need not be those of what is served under its name."""


class NoteRefusal(msgspec.Struct, frozen=True, tag="note_refusal"):
    """Show in the index that a model of the repository cannot be served as it is now."""

    model: str
    versions: tuple[str, ...]
    """Those that are not served because of it; none: it is not known which."""
    reason: str
    """Empty: forget it, the model is gone."""


Step = ServeModel | UnloadModel | RegisterRegion | UnregisterRegion | NoteRefusal
"""What a worker does for a change."""


class Start(msgspec.Struct, tag="start"):
    """First words to a worker."""

    settings: Settings
    slot: int
    """Its place among the workers, and its row in the metrics."""
    models: tuple[ServingConfig, ...]
    """What is served now."""
    regions: tuple[RegisterRegion, ...]
    """Shared memory that clients have registered."""
    http: list[int]
    """Descriptors of its bound sockets for HTTP."""
    grpc: list[int]
    """Descriptors of its bound sockets for gRPC."""
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


class Prepare(msgspec.Struct, tag="prepare"):
    """Do everything of a change that can fail, visibly to nobody, and answer `Prepared`."""

    change_id: int
    step: Step


class Commit(msgspec.Struct, tag="commit"):
    """Every worker is prepared: make the change visible, and answer `Committed`."""

    change_id: int


class Discard(msgspec.Struct, tag="discard"):
    """Some worker could not prepare: forget the change."""

    change_id: int


class Changed(msgspec.Struct, tag="changed"):
    """The change that this worker asked for is made, or could not be made."""

    request_id: int
    problem: Problem | None
    revision: int = 0
    """Of the model, where versions were registered or retired."""


class Loaded(msgspec.Struct, tag="loaded"):
    """The worker has loaded all that it was started with, but for what it said that it cannot."""


class Failed(msgspec.Struct, tag="failed"):
    """The worker cannot load a model, and goes on with the others; the text is for the user."""

    model: str
    message: str


class Ask(msgspec.Struct, tag="ask"):
    """A client of this worker wants a change."""

    request_id: int
    change: Change | VersionChange


class Prepared(msgspec.Struct, tag="prepared"):
    """The answer to `Prepare`."""

    change_id: int
    problem: Problem | None


class Committed(msgspec.Struct, tag="committed"):
    """The answer to `Commit`."""

    change_id: int


ToWorker = Start | Ready | LameDuck | Drain | Prepare | Commit | Discard | Changed
ToParent = Loaded | Failed | Ask | Prepared | Committed

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
