"""What form a frame must have, whatever it means (https://www.rfc-editor.org/rfc/rfc9113#section-6).

DATA, HEADERS and CONTINUATION are not here: who reads them checks them on the way.
"""

from typing import Final

from mcp2026.runtime.protocol.http2.errors import ConnectionProtocolError, Http2Code, StreamProtocolError
from mcp2026.runtime.protocol.http2.frames import (
    ACK,
    GOAWAY,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    dependency,
)

_OF_THE_CONNECTION: Final = {SETTINGS: "SETTINGS", PING: "PING", GOAWAY: "GOAWAY"}
"""Frames that are never on a stream, with their names."""
_SIZES: Final = {RST_STREAM: ("RST_STREAM", 4), PING: ("PING", 8), WINDOW_UPDATE: ("WINDOW_UPDATE", 4)}
"""Frames of one size, with their names and their payload in bytes."""


def check_form(kind: int, flags: int, stream_id: int, payload: bytes) -> None:
    """Raise ConnectionProtocolError or StreamProtocolError for a frame that a client cannot have meant."""
    if stream_id != 0 and kind in _OF_THE_CONNECTION:
        raise ConnectionProtocolError(Http2Code.PROTOCOL_ERROR, f"{_OF_THE_CONNECTION[kind]} on a stream")
    if kind in _SIZES:
        name, size = _SIZES[kind]
        if len(payload) != size:
            raise ConnectionProtocolError(Http2Code.FRAME_SIZE_ERROR, f"{name} is not {size} bytes")
    elif kind == SETTINGS:
        if flags & ACK and payload:
            raise ConnectionProtocolError(Http2Code.FRAME_SIZE_ERROR, "an acknowledgement with content")
        if len(payload) % 6:
            raise ConnectionProtocolError(Http2Code.FRAME_SIZE_ERROR, "SETTINGS is not a multiple of 6 bytes")
    elif kind == GOAWAY:
        if len(payload) < 8:
            raise ConnectionProtocolError(Http2Code.FRAME_SIZE_ERROR, "GOAWAY is shorter than 8 bytes")
    elif kind == PRIORITY:
        _check_priority(stream_id, payload)
    elif kind == PUSH_PROMISE:
        raise ConnectionProtocolError(Http2Code.PROTOCOL_ERROR, "PUSH_PROMISE from a client")


def _check_priority(stream_id: int, payload: bytes) -> None:
    if stream_id == 0:
        raise ConnectionProtocolError(Http2Code.PROTOCOL_ERROR, "PRIORITY on stream 0")
    if len(payload) != 5:
        raise StreamProtocolError(stream_id, Http2Code.FRAME_SIZE_ERROR, "PRIORITY is not 5 bytes")
    if dependency(payload) == stream_id:
        raise StreamProtocolError(stream_id, Http2Code.PROTOCOL_ERROR, "a stream depends on itself")
