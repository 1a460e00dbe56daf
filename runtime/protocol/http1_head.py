"""Heads of HTTP/1.1 requests that were seen before, and what they mean.

A client that keeps its connection sends the same head with every request. Such a head is parsed once and
then recognised by its bytes. Only plain heads are remembered: what follows one is a body of known length, and
after that the next request.
"""

from collections.abc import Callable
from typing import NamedTuple

import httptools

from mcp2026.api.batching_negotiation import NegotiationError
from mcp2026.runtime.negotiation.connection import Negotiation
from mcp2026.runtime.negotiation.terms import CAPABLE, NO_SETTINGS, Carrier
from mcp2026.runtime.protocol.connections import ConnectionLimits
from mcp2026.runtime.protocol.exchange import RequestHead, Response

HEAD_END = b"\r\n\r\n"
_MAX_HEADS = 512
_MAX_HEAD_BYTES = 1024


class KnownHead(NamedTuple):
    """A plain head: HTTP/1.1, kept alive, a body of known length; of batching it is decided what holds."""

    head: RequestHead
    body_bytes: int
    head_only: bool
    """The answer is sent without its body."""


class KnownHeads:
    """The heads that clients sent to one application at least twice. Their number and size are bounded."""

    def __init__(
        self,
        limits: ConnectionLimits,
        admit: Callable[[RequestHead], Response | None],
        negotiation: Negotiation | None = None,
    ) -> None:
        """Remember only what `admit` has no objection to."""
        self._limits = limits
        self._admit = admit
        self._negotiation = negotiation
        self._seen: set[bytes] = set()
        self._known: dict[bytes, KnownHead | None] = {}
        self.get = self._known.get
        """Look a head up by its bytes; None if it is not known, not plain, or not admitted."""
        if negotiation is not None:
            negotiation.listeners[self] = self._known.clear

    def note(self, head: bytes) -> None:
        """Take in a head that is not known, with which a request begins."""
        if len(head) > _MAX_HEAD_BYTES or head in self._known:
            return
        if head not in self._seen:
            if len(self._seen) >= _MAX_HEADS:
                self._seen.clear()
            self._seen.add(head)
            return
        if len(self._known) >= _MAX_HEADS:
            self._known.clear()
        known = plain_head(head, self._limits)
        if known is not None:
            settle_batching(known.head, self._negotiation)
            if self._admit(known.head) is not None:
                known = None
        self._known[head] = known


def plain_head(head: bytes, limits: ConnectionLimits) -> KnownHead | None:
    """Return what `head`, the bytes up to the first empty line, means if it is a plain one."""
    found = _Head()
    parser = httptools.HttpRequestParser(found)
    try:
        parser.feed_data(head[:-1])
        early = found.complete
        parser.feed_data(head[-1:])
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    headers = found.headers
    length = int(headers.get(b"content-length", b"0"))
    plain = (
        not early
        and found.complete
        and len(head) <= limits.max_head_bytes
        and found.count <= limits.max_headers
        and length <= limits.max_body_bytes
        and parser.get_http_version() == "1.1"
        and parser.should_keep_alive()
        and not parser.should_upgrade()
        and b"host" in headers
        and not found.repeats_host
        and not headers.keys() & {b"transfer-encoding", b"expect", b"upgrade"}
    )
    if not plain:
        return None
    method = parser.get_method().decode("latin-1")
    return KnownHead(RequestHead(method, path_of(found.url), headers), length, method == "HEAD")


def settle_batching(head: RequestHead, negotiation: Negotiation | None) -> None:
    """Decide what of batching holds for requests with `head`, from what the head itself says."""
    value = head.headers.get(CAPABLE)
    if value is None or negotiation is None:
        return
    try:
        head.batching = negotiation.decide(head.path, value, NO_SETTINGS, Carrier.HEADER, plain_offers=True)
    except NegotiationError as error:
        head.refused_offer = error


class _Head:
    """What httptools finds in one head."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[bytes, bytes] = {}
        self.count = 0
        self.repeats_host = False
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.count += 1
        name = name.lower()
        self.repeats_host |= name == b"host" and name in self.headers
        self.headers[name] = value

    def on_headers_complete(self) -> None:
        self.complete = True


def path_of(target: bytes) -> str:
    """Return the path of a request target, which may also be a whole URL."""
    if not target.startswith(b"/") and b"://" in target:
        target = b"/" + target.split(b"://", 1)[1].partition(b"/")[2]
    return target.split(b"?", 1)[0].decode("latin-1")
