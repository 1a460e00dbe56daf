"""The frames of HTTP/2 as bytes (https://www.rfc-editor.org/rfc/rfc9113#section-6)."""

import struct
from collections.abc import Mapping
from typing import Final

from mcp2026.runtime.protocol.http2.errors import ConnectionProtocolError, Http2Code

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of a client that speaks HTTP/2."""

DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PUSH_PROMISE: Final = 0x5
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20

HEADER_TABLE_SIZE: Final = 0x1
ENABLE_PUSH: Final = 0x2
MAX_CONCURRENT_STREAMS: Final = 0x3
INITIAL_WINDOW_SIZE: Final = 0x4
MAX_FRAME_SIZE: Final = 0x5
MAX_HEADER_LIST_SIZE: Final = 0x6
ENABLE_CONNECT_PROTOCOL: Final = 0x8
NO_RFC7540_PRIORITIES: Final = 0x9

MAX_STREAM_ID: Final = 0x7FFF_FFFF
MAX_WINDOW: Final = 0x7FFF_FFFF
DEFAULT_WINDOW: Final = 65_535
SMALLEST_MAX_FRAME: Final = 16_384
LARGEST_MAX_FRAME: Final = 16_777_215

HEAD_SIZE: Final = 9
HEAD: Final = struct.Struct(">IBI")
"""A frame's head: length (24 bits) and type (8) as one number, flags, stream. One call reads or writes it."""

_SETTING = struct.Struct(">HI")


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return one frame."""
    return HEAD.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def settings_frame(settings: Mapping[int, int]) -> bytes:
    """Return a SETTINGS frame; ids have 16 bits, values 32."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*setting) for setting in settings.items()))


def read_settings(payload: bytes) -> dict[int, int]:
    """Return the settings of a frame whose length is a multiple of 6; of repeated ids the last."""
    return dict(_SETTING.iter_unpack(payload))


def listed_settings(payload: bytes) -> list[tuple[int, int]]:
    """Return ids and values of such a frame in their order, repeated ones, too."""
    return list(_SETTING.iter_unpack(payload))


def window_update_frame(stream_id: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame."""
    return frame(WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))


def reset_frame(stream_id: int, code: int) -> bytes:
    """Return a RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))


def goaway_frame(last_stream_id: int, code: int, message: str = "") -> bytes:
    """Return a GOAWAY frame."""
    numbers = last_stream_id.to_bytes(4, "big") + code.to_bytes(4, "big")
    return frame(GOAWAY, 0, 0, numbers + message.encode())


def unpadded(payload: bytes) -> tuple[bytes, int]:
    """Return a payload without its padding, and the bytes that the padding took."""
    if not payload:
        raise ConnectionProtocolError(Http2Code.FRAME_SIZE_ERROR, "a frame too short for its padding")
    padding = payload[0]
    if padding >= len(payload):
        raise ConnectionProtocolError(Http2Code.PROTOCOL_ERROR, "more padding than payload")
    return payload[1 : len(payload) - padding], padding + 1


def dependency(payload: bytes) -> int:
    """Return the stream that a priority's first bytes name."""
    return int.from_bytes(payload[:4], "big") & MAX_STREAM_ID
