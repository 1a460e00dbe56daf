"""Which fields make a request (https://www.rfc-editor.org/rfc/rfc9113#section-8)."""

import re
from collections.abc import Sequence

from mcp2026.runtime.negotiation.terms import CAPABLE
from mcp2026.runtime.protocol.exchange import RequestHead
from mcp2026.runtime.protocol.http2.errors import MalformedRequestError
from mcp2026.runtime.protocol.http2.header_decoder import STATIC_TABLE, Field

_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_CONNECTION_SPECIFIC = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)
_USUAL_NAMES = frozenset(name for name, _ in STATIC_TABLE if name[:1] != b":") - _CONNECTION_SPECIFIC
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE = re.compile(rb"[\x00\r\n]|\A[ \t]|[ \t]\Z")
_METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_GRPC_TYPE = re.compile(rb"application/grpc(\Z|[+;])", re.IGNORECASE)
_BAD_PATH = re.compile(rb"[\x00-\x20\x7f]")


class RequestHeaders:
    """A request's fields, checked. One object may stand for many requests with equal fields."""

    __slots__ = ("batch_capable", "content_length", "expects_continue", "head", "is_grpc", "prepared")

    def __init__(self, head: RequestHead, content_length: int | None) -> None:
        self.head = head
        self.content_length = content_length
        self.is_grpc = _GRPC_TYPE.match(head.headers.get(b"content-type", b"")) is not None
        self.expects_continue = head.headers.get(b"expect", b"").lower() == b"100-continue"
        self.batch_capable = head.headers.get(CAPABLE)
        self.prepared: object = None
        """What the server of the request made of it, kept for equal ones."""


def read_request(fields: Sequence[Field]) -> RequestHeaders:
    """Return the request that `fields` describe, or raise MalformedRequestError."""
    pseudo: dict[bytes, bytes] = {}
    headers: dict[bytes, bytes] = {}
    for name, value in fields:
        if name[:1] == b":":
            if name not in _PSEUDO:
                raise MalformedRequestError(f"{_shown(name)} is no pseudo-header of a request")
            if name in pseudo:
                raise MalformedRequestError(f"{_shown(name)} comes twice")
            if headers:
                raise MalformedRequestError(f"{_shown(name)} comes after a header")
            pseudo[name] = value
            continue
        _check(name, value)
        if name not in headers:
            headers[name] = value
        elif name == b"cookie":  # which HTTP/2 may split (RFC 9113 §8.2.3)
            headers[name] += b"; " + value
        elif name in (b"content-length", b"host") and headers[name] != value:
            raise MalformedRequestError(f"{_shown(name)} comes twice")
        else:
            headers[name] = value
    method = pseudo.get(b":method")
    path = pseudo.get(b":path")
    if method is None or _METHOD.fullmatch(method) is None:
        raise MalformedRequestError(":method is missing or no method")
    if method == b"CONNECT":
        raise MalformedRequestError("this is no proxy")
    if b":scheme" not in pseudo:
        raise MalformedRequestError(":scheme is missing")
    if not path or (path[:1] != b"/" and path != b"*") or _BAD_PATH.search(path):
        raise MalformedRequestError(":path is missing or no path")
    authority = pseudo.get(b":authority")
    if authority is not None:
        if _BAD_VALUE.search(authority):
            raise MalformedRequestError(":authority is no authority")
        if headers.setdefault(b"host", authority) != authority:
            raise MalformedRequestError(":authority and host differ")
    head = RequestHead(method.decode("latin-1"), path.split(b"?", 1)[0].decode("latin-1"), headers)
    return RequestHeaders(head, _content_length(headers))


def check_trailers(fields: Sequence[Field]) -> None:
    """Raise MalformedRequestError unless `fields` may follow a body."""
    for name, value in fields:
        if name[:1] == b":":
            raise MalformedRequestError(f"{_shown(name)} comes in trailers")
        _check(name, value)


def _check(name: bytes, value: bytes) -> None:
    if name not in _USUAL_NAMES:
        if _NAME.fullmatch(name) is None:
            raise MalformedRequestError(f"{_shown(name)} is no name of a header in lower case")
        if name in _CONNECTION_SPECIFIC:
            raise MalformedRequestError(f"{_shown(name)} belongs to HTTP/1.1")
        if name == b"te" and value.lower() != b"trailers":
            raise MalformedRequestError("te may only be trailers")
    if _BAD_VALUE.search(value):
        raise MalformedRequestError(f"the value of {_shown(name)} is no value of a header")


def _content_length(headers: dict[bytes, bytes]) -> int | None:
    text = headers.get(b"content-length")
    if text is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise MalformedRequestError("content-length is no length")
    return int(text)


def _shown(name: bytes) -> str:
    return name[:40].decode("ascii", "backslashreplace")
