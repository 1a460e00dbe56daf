"""The first bytes of an HTTP/2 connection, one by one: RFC 9113 §3.4 and §6.5, and SPEC R2.3."""

import hyperframe.frame
import pytest

from mcp2026.api.batching_negotiation import BatchingOffer
from mcp2026.client.addresses import parse_address
from mcp2026.client.wire.first_frames import settings_frame
from mcp2026.client.wire.http2 import Http2Wire

ADDRESS = parse_address("h2://localhost:8080")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NEGOTIATION = bytes.fromhex("F0B0 00000001  F0B1 00000014  F0B2 00000004")


def first_settings(offer: BatchingOffer | None) -> bytes:
    sent = Http2Wire(ADDRESS, 2**20, offer).take()
    assert sent.startswith(PREFACE)
    frame = sent[len(PREFACE) :]
    assert frame[3:9] == bytes.fromhex("04 00 00000000")  # SETTINGS, no flags, stream 0
    return frame[9 : 9 + int.from_bytes(frame[:3], "big")]


def test_the_three_settings_are_in_the_first_settings_frame() -> None:
    payload = first_settings(BatchingOffer(20, 4))
    assert payload.endswith(NEGOTIATION)
    ids = [payload[place : place + 2].hex() for place in range(0, len(payload), 6)]
    assert len(set(ids)) == len(ids)
    assert "00b0" not in ids  # what hyperframe 6.1.0 makes of 0xF0B0


def test_a_client_that_offers_nothing_sends_none_of_them() -> None:
    payload = first_settings(None)
    assert b"\xf0" not in payload[::6]


def test_server_push_is_turned_off() -> None:
    assert bytes.fromhex("0002 00000000") in first_settings(None)


def test_a_later_frame_renegotiates() -> None:
    wire = Http2Wire(ADDRESS, 2**20, BatchingOffer())
    wire.take()
    wire.offer(BatchingOffer(20, 4))
    assert wire.take() == bytes.fromhex("000012 04 00 00000000") + NEGOTIATION


@pytest.mark.parametrize(
    ("settings", "frame"),
    [
        ({}, "000000 04 00 00000000"),
        ({0xFFFF: 2**32 - 1}, "000006 04 00 00000000 FFFF FFFFFFFF"),
        ({4: 1, 1: 0}, "00000C 04 00 00000000 0004 00000001 0001 00000000"),
    ],
)
def test_a_settings_frame_has_these_bytes(settings: dict[int, int], frame: str) -> None:
    assert settings_frame(settings) == bytes.fromhex(frame)


def test_the_library_that_others_use_is_left_alone() -> None:
    frame = hyperframe.frame.SettingsFrame(settings={0x4: 1})
    before = frame.serialize()
    Http2Wire(ADDRESS, 2**20, BatchingOffer()).take()
    assert frame.serialize() == before
    assert hyperframe.frame.SettingsFrame.__module__ == "hyperframe.frame"
