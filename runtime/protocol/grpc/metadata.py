"""The headers of a call: deadline, compression, status, and metadata in both directions."""

import base64
import re
from functools import lru_cache

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.runtime.errors import invalid
from mcp2026.runtime.protocol.grpc.framing import ENCODINGS, CallFailedError
from mcp2026.runtime.protocol.grpc.service import CallHead, UnaryMethod
from mcp2026.runtime.protocol.http2 import header_encoder
from mcp2026.runtime.protocol.http2.header_decoder import Field
from mcp2026.runtime.protocol.http2.request_headers import RequestHeaders

_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNIT_NS = {
    b"H": 3_600_000_000_000,
    b"M": 60_000_000_000,
    b"S": 1_000_000_000,
    b"m": 1_000_000,
    b"u": 1_000,
    b"n": 1,
}
_MAX_DETAIL_BYTES = 4096
"""Of a status message: it travels in headers, which clients limit."""
_CONTENT_TYPE: Field = (b"content-type", b"application/grpc")
_ACCEPT_ENCODING: Field = (b"grpc-accept-encoding", b",".join(ENCODINGS))

RESPONSE_START = header_encoder.status(200) + header_encoder.block((_CONTENT_TYPE,))
"""The header block before messages, of a call for which nothing was negotiated."""
RESPONSE_START_GZIP = RESPONSE_START + header_encoder.block(((b"grpc-encoding", b"gzip"), _ACCEPT_ENCODING))
OK_TRAILERS = header_encoder.literal(b"grpc-status", b"0")


class PreparedCall:
    """What the headers of a call say."""

    __slots__ = ("encoding", "failure", "head", "start", "start_gzip", "unary")

    def __init__(self, request: RequestHeaders) -> None:
        headers = request.head.headers
        self.encoding = headers.get(b"grpc-encoding", b"identity")
        self.unary: UnaryMethod | None = None
        """The method, once it was looked for, if there is one with one message and one reply."""
        self.failure: CallFailedError | None = None
        """With which the call ends before it begins."""
        timeout_ns = None
        try:
            timeout_ns = read_timeout(headers.get(b"grpc-timeout"))
        except CallFailedError as failure:
            self.failure = failure
        if self.encoding not in ENCODINGS:
            known = b", ".join(ENCODINGS).decode()
            shown = self.encoding[:40].decode("ascii", "backslashreplace")
            self.failure = CallFailedError(
                GrpcCode.UNIMPLEMENTED, f"grpc-encoding: {shown} is not known; allowed: {known}"
            )
        refused, terms = request.head.refused_offer, request.head.batching
        if refused is not None:
            error = invalid(refused.field, refused.problem, refused.allowed, refused.rule)
            self.failure = CallFailedError(GrpcCode.INVALID_ARGUMENT, str(refused), error)
        self.head = CallHead(request.head.path, headers, timeout_ns, terms)
        self.start, self.start_gzip = RESPONSE_START, RESPONSE_START_GZIP
        """The header block before messages, plain and compressed."""
        if terms is not None:
            confirmed = header_encoder.literal(*terms.field)
            self.start, self.start_gzip = self.start + confirmed, self.start_gzip + confirmed


def prepared_call(request: RequestHeaders) -> PreparedCall:
    """Return what the headers say, made once for equal headers."""
    prepared = request.prepared
    if not isinstance(prepared, PreparedCall):
        request.prepared = prepared = PreparedCall(request)
    return prepared


def read_timeout(text: bytes | None) -> int | None:
    """Return `grpc-timeout` in ns, None if there is none. Raises CallFailedError."""
    if text is None:
        return None
    match = _TIMEOUT.fullmatch(text)
    if match is None:
        shown = text[:40].decode("ascii", "backslashreplace")
        raise CallFailedError(
            GrpcCode.INVALID_ARGUMENT,
            f"grpc-timeout: {shown!r} is no timeout; allowed: up to 8 digits and one of H, M, S, m, u, n",
        )
    return int(match[1]) * _UNIT_NS[match[2]]


@lru_cache(maxsize=64)
def trailers(code: GrpcCode, detail: str, more: tuple[Field, ...] = ()) -> bytes:
    """Return the header block of a call's end.

    Values of names that end in `-bin` are given raw and sent as base64.
    """
    fields: list[Field] = [(b"grpc-status", b"%d" % code)]
    if detail:
        fields.append((b"grpc-message", percent_encoded(detail)))
    fields += [(name, _encoded(name, value)) for name, value in more]
    return header_encoder.block(fields)


def trailers_only(code: GrpcCode, detail: str, more: tuple[Field, ...] = ()) -> bytes:
    """Return the only header block of a call that is answered without a message."""
    start = RESPONSE_START
    if code is GrpcCode.UNIMPLEMENTED:
        start += header_encoder.block((_ACCEPT_ENCODING,))
    return start + trailers(code, detail, more)


def percent_encoded(detail: str) -> bytes:
    """Return a status message as `grpc-message` carries it: printable ASCII, all else and % as %XX."""
    text = detail.encode("utf-8", "replace")[:_MAX_DETAIL_BYTES]
    # Cutting may have left half a character, which no client could decode.
    text = text.decode("utf-8", "ignore").encode()
    return b"".join(
        b"%c" % byte if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte for byte in text
    )


def binary_value(value: bytes) -> bytes:
    """Return the bytes of a metadatum whose name ends in `-bin`. Raises ValueError if it is not base64."""
    value = value.split(b",", 1)[0].strip()
    return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)


def _encoded(name: bytes, value: bytes) -> bytes:
    return base64.b64encode(value).rstrip(b"=") if name.endswith(b"-bin") else value
