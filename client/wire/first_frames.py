"""The first bytes of an HTTP/2 connection, and later SETTINGS frames, written by ourselves.

hyperframe 6.1.0, which h2 uses, sends the lower 8 bits of a setting's id: 0xF0B0 would go out as 0xB0, and
0xF002 as ENABLE_PUSH. Its classes are left alone: they belong to every user of h2 in the process.
RFC 9113 §3.4, §4.1, §6.5.
"""

import struct
from collections.abc import Mapping

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_SETTINGS = 0x04
_HEAD = struct.Struct(">HBBBI")
_SETTING = struct.Struct(">HI")


def settings_frame(settings: Mapping[int, int]) -> bytes:
    """Return a SETTINGS frame, with the settings in their order."""
    payload = b"".join(_SETTING.pack(identifier, value) for identifier, value in settings.items())
    return _HEAD.pack(len(payload) >> 8, len(payload) & 0xFF, _SETTINGS, 0, 0) + payload
