"""The list-and-watch protocol of the API server without its sockets: bytes in, cluster events out.

A kind is listed in pages, then watched from the list's resourceVersion on. Every event and bookmark moves
that version forward, so that a broken watch goes on where it broke. Once the server has forgotten that
version (410), only a new list helps.
"""

from dataclasses import dataclass
from http import HTTPStatus

import msgspec

from mcp2026.scheduler_extender.cluster_events import (
    ClusterEvent,
    Gone,
    Kind,
    Listed,
    Observed,
    Seen,
    observe,
)
from mcp2026.scheduler_extender.errors import WatchExpiredError, WatchRefusedError
from mcp2026.scheduler_extender.kube_objects import Metadata

PAGE_SIZE = 500
"""Objects asked for at once, as client-go does."""


class _ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _ListPage(msgspec.Struct, frozen=True):
    metadata: _ListMetadata
    items: tuple[msgspec.Raw, ...] | None = None


class _WatchLine(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""


class _Versioned(msgspec.Struct, frozen=True):
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask the API server next: query parameters, and whether the answer is an endless watch."""

    query: tuple[tuple[str, str], ...]
    watch: bool


class ListWatch:
    """Where one kind stands between list and watch. The caller sends `next_request()` and feeds answers."""

    def __init__(self, kind: Kind, field_selector: str = "") -> None:
        self.kind = kind
        self.resource_version: str | None = None
        """Where the next watch starts; None: list first."""
        self._selector = (("fieldSelector", field_selector),) if field_selector else ()
        self._pages: list[Observed] = []
        self._continue: str | None = None

    def next_request(self, watch_seconds: int) -> Request:
        """Return the next request; a watch asks the server to end it after `watch_seconds`."""
        if self.resource_version is None:
            page = (("limit", str(PAGE_SIZE)),)
            more = (("continue", self._continue),) if self._continue else ()
            return Request((*self._selector, *page, *more), watch=False)
        return Request(
            (
                *self._selector,
                ("watch", "true"),
                ("allowWatchBookmarks", "true"),
                ("resourceVersion", self.resource_version),
                ("timeoutSeconds", str(watch_seconds)),
            ),
            watch=True,
        )

    def receive_page(self, body: bytes) -> Listed | None:
        """Take one page of a list; return the list once it is whole.

        Raises:
            msgspec.DecodeError: it is no list of this kind.

        """
        page = msgspec.json.decode(body, type=_ListPage)
        self._pages.extend(observe(self.kind, item) for item in page.items or ())
        self._continue = page.metadata.continue_ or None
        if self._continue is not None:
            return None
        self.resource_version = page.metadata.resource_version
        objects, self._pages = tuple(self._pages), []
        return Listed(self.kind, objects)

    def receive_line(self, line: bytes) -> ClusterEvent | None:
        """Take one line of a watch; return what changed, or None for a bookmark.

        Raises:
            WatchExpiredError: our resourceVersion is too old.
            WatchRefusedError: the server ended the watch with another error.
            msgspec.DecodeError: it is no watch event.

        """
        event = msgspec.json.decode(line, type=_WatchLine)
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=_Status)
            self.refuse(status.code, status.message)
        observed: ClusterEvent | None = None
        if event.type in ("ADDED", "MODIFIED"):
            observed = Seen(observe(self.kind, event.object))
        elif event.type == "DELETED":
            observed = Gone(self.kind, observe(self.kind, event.object).key)
        self.resource_version = msgspec.json.decode(event.object, type=_Versioned).metadata.resource_version
        return observed

    def refuse(self, status: int, message: str) -> None:
        """Take the error `status` that the server answered a list or watch with.

        Raises:
            WatchExpiredError: our resourceVersion is too old; the next request lists from the start.
            WatchRefusedError: anything else. The next request lists too, for the server may be another one
                that never knew our version (504), unless it only asked us to come back later (429).

        """
        if status != HTTPStatus.TOO_MANY_REQUESTS:
            self.restart()
        if status == HTTPStatus.GONE:
            raise WatchExpiredError(message)
        raise WatchRefusedError(status, message)

    def restart(self) -> None:
        """Forget the position: the next request lists from the start."""
        self.resource_version, self._continue, self._pages = None, None, []
