"""Keys from files and URLs as they rotate, and how a token is remembered."""

import http.server
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp2026.api.scheduling_context import QosClass, SlaClaims, SlaRefusal
from mcp2026.api.sla_token import KeySet, encode_key_set, generate_signing_key, issue_sla_token, parse_key_set
from mcp2026.runtime.context import key_keeper, token_check
from mcp2026.runtime.context.key_keeper import KeyKeeper
from mcp2026.runtime.context.key_schedule import (
    DEFAULT_SECONDS,
    LONGEST_RETRY_SECONDS,
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    KeySchedule,
    lifetime,
)
from mcp2026.runtime.context.key_source import MAX_BYTES, FileSource, KeySourceError, UrlSource, key_source
from mcp2026.runtime.context.token_check import TokenCheck

PATIENCE = 20.0
FIRST, SECOND = generate_signing_key("one"), generate_signing_key("two", "ES256")
CLAIMS = SlaClaims(QosClass.BURSTABLE, 2, 3, "acme", "silver")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# --- when to look


@pytest.mark.parametrize(
    ("cache_control", "seconds"),
    [
        (None, DEFAULT_SECONDS),
        ("", DEFAULT_SECONDS),
        ("public", DEFAULT_SECONDS),
        ("max-age=60", 60.0),
        ("public, Max-Age = 60", DEFAULT_SECONDS),
        ('public, max-age="60"', 60.0),
        ("max-age=1", SHORTEST_SECONDS),
        ("max-age=99999999", LONGEST_SECONDS),
        ("max-age=" + "9" * 5_000, DEFAULT_SECONDS),
        ("max-age=-5", DEFAULT_SECONDS),
        ("no-cache, max-age=60", SHORTEST_SECONDS),
        ("no-store", SHORTEST_SECONDS),
    ],
)
def test_a_set_is_used_as_long_as_it_may_be_within_bounds(cache_control: str | None, seconds: float) -> None:
    assert lifetime(cache_control) == seconds


def test_failures_are_retried_ever_more_slowly() -> None:
    schedule, now, waits = KeySchedule(), 0.0, []
    for _ in range(12):
        schedule.failed(now)
        waits.append(schedule.due - now)
        now = schedule.due
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, *[LONGEST_RETRY_SECONDS] * 3]
    schedule.wanted()
    assert schedule.due == now  # an unknown key does not hasten it
    schedule.succeeded(now, "max-age=600")
    assert schedule.due == now + 600
    schedule.wanted()
    assert schedule.due == now + SHORTEST_SECONDS
    schedule.failed(schedule.due)
    assert schedule.due == now + SHORTEST_SECONDS + 1


# --- files


def test_a_file_is_read_again_only_if_it_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    source = FileSource(path)
    with pytest.raises(KeySourceError, match="No such file"):
        source.read()
    path.write_bytes(b"one")
    assert source.read().document == b"one"
    assert source.read().document == b"one"  # it was not accepted yet
    source.accepted()
    assert source.read().document is None
    (tmp_path / "new").write_bytes(b"two")
    (tmp_path / "new").replace(path)
    assert source.read().document == b"two"
    source.accepted()
    path.write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(KeySourceError, match="larger than"):
        source.read()


def test_a_config_map_is_followed_through_its_links(tmp_path: Path) -> None:
    for name, content in (("..1", b"one"), ("..2", b"two")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "keys.json").write_bytes(content)
        os.utime(tmp_path / name / "keys.json", (1, 1))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "keys.json").symlink_to("..data/keys.json")
    source = FileSource(tmp_path / "keys.json")
    assert source.read().document == b"one"
    source.accepted()
    (tmp_path / "..tmp").symlink_to("..2")
    (tmp_path / "..tmp").replace(tmp_path / "..data")
    assert source.read().document == b"two"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_keeper, "POLL_SECONDS", 0.01)


@pytest.fixture
def keep() -> Iterator[Callable[..., KeyKeeper]]:
    kept: list[KeyKeeper] = []

    def start(place: str, failed: Callable[[], None] = lambda: None) -> KeyKeeper:
        keeper = KeyKeeper(key_source(place), failed)
        kept.append(keeper)
        keeper.start()
        keeper.wait(PATIENCE)
        return keeper

    yield start
    for keeper in kept:
        keeper.close()


@pytest.mark.usefixtures("quick")
def test_the_last_good_set_stays_while_the_file_is_wrong_or_gone(
    tmp_path: Path, keep: Callable[..., KeyKeeper]
) -> None:
    path, failures = tmp_path / "keys.json", []
    keeper = keep(str(path), lambda: failures.append(1))
    assert keeper.keys == {}
    path.write_bytes(encode_key_set(FIRST))
    wait_until(lambda: list(keeper.keys) == ["one"])
    seen = len(failures)
    path.write_bytes(b'{"keys": [')  # half-way through a write that is not atomic
    wait_until(lambda: len(failures) > seen)
    assert list(keeper.keys) == ["one"]
    path.unlink()
    seen = len(failures)
    wait_until(lambda: len(failures) > seen)
    assert list(keeper.keys) == ["one"]
    path.write_bytes(encode_key_set(FIRST, SECOND))
    wait_until(lambda: list(keeper.keys) == ["one", "two"])
    path.write_bytes(encode_key_set(SECOND))
    wait_until(lambda: list(keeper.keys) == ["two"])


# --- URLs


class KeyServer(http.server.ThreadingHTTPServer):
    """Serves a key set, or whatever a test wants."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _KeyHandler)
        self.document = encode_key_set(FIRST)
        self.etag = '"1"'
        self.status = 200
        self.cache_control = "max-age=3600"
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/keys?set=sla"


class _KeyHandler(http.server.BaseHTTPRequestHandler):
    server: KeyServer

    def do_GET(self) -> None:
        server = self.server
        known = self.headers.get("if-none-match")
        server.asked.append(known)
        assert self.path == "/keys?set=sla"
        status = 304 if known == server.etag else server.status
        self.send_response(status)
        if status == 302:
            self.send_header("location", server.url)
        self.send_header("etag", server.etag)
        self.send_header("cache-control", server.cache_control)
        self.end_headers()
        if status == 200:
            self.wfile.write(server.document)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def key_server() -> Iterator[KeyServer]:
    server = KeyServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_url_is_asked_with_the_etag_of_what_was_accepted(key_server: KeyServer) -> None:
    source = UrlSource(key_server.url)
    read = source.read()
    assert read.document == key_server.document
    assert read.cache_control == "max-age=3600"
    source.read()
    source.accepted()
    assert source.read().document is None
    key_server.etag, key_server.document = '"2"', b"new"
    assert source.read().document == b"new"
    assert key_server.asked == [None, None, '"1"', '"1"']


@pytest.mark.parametrize(
    ("status", "document", "said"),
    [(500, b"", "answers 500"), (302, b"", "answers 302"), (200, b"x" * (MAX_BYTES + 1), "sends more than")],
)
def test_a_url_that_does_not_give_the_set_is_named(
    key_server: KeyServer, status: int, document: bytes, said: str
) -> None:
    key_server.status, key_server.document = status, document
    with pytest.raises(KeySourceError, match=said):
        UrlSource(key_server.url).read()


def test_a_url_that_nobody_serves_is_named() -> None:
    with pytest.raises(KeySourceError, match=r"http://127\.0\.0\.1: .*refused"):
        UrlSource("http://127.0.0.1:1/keys").read()


@pytest.mark.parametrize(
    "begin",
    [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"],
    ids=["head", "body"],
)
def test_a_url_that_gives_the_set_byte_by_byte_is_given_up_as_a_whole(
    begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp2026.runtime.context.key_source.FETCH_SECONDS", 0.3)
    gone = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            client, _ = listener.accept()
            with client:
                try:
                    client.sendall(begin)
                    while not gone.wait(0.02):
                        client.sendall(b"x: y\r\n")
                except OSError:
                    gone.set()

        threading.Thread(target=drip, daemon=True).start()
        with pytest.raises(KeySourceError):
            UrlSource(f"http://127.0.0.1:{listener.getsockname()[1]}/keys").read()
        assert gone.wait(PATIENCE)


def test_an_unknown_key_is_looked_for_at_once_if_the_set_is_not_fresh(
    key_server: KeyServer, keep: Callable[..., KeyKeeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp2026.runtime.context.key_schedule.SHORTEST_SECONDS", 0.0)
    keeper = keep(key_server.url)
    assert list(keeper.keys) == ["one"]
    key_server.etag, key_server.document = '"2"', encode_key_set(FIRST, SECOND)
    keeper.wanted()
    wait_until(lambda: list(keeper.keys) == ["one", "two"])


def test_a_flood_of_unknown_keys_does_not_hasten_a_fresh_set(
    key_server: KeyServer, keep: Callable[..., KeyKeeper]
) -> None:
    keeper = keep(key_server.url)
    for _ in range(1_000):
        keeper.wanted()
    keeper.close()
    keeper._thread.join(PATIENCE)
    assert len(key_server.asked) == 1


# --- tokens


class Held:
    """Keys that a test changes."""

    def __init__(self) -> None:
        self.keys: KeySet = parse_key_set(encode_key_set(FIRST))
        self.hints = 0

    def wanted(self) -> None:
        self.hints += 1


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the tokens whose signature was looked at."""
    seen: list[bytes] = []
    real = token_check.verify_sla_token

    def count(token: bytes, *arguments: Any, **named: Any) -> Any:
        seen.append(token)
        return real(token, *arguments, **named)

    monkeypatch.setattr(token_check, "verify_sla_token", count)
    return seen


def token(now: float, key: Any = FIRST, pod: str = "pod", lifetime: float = 600) -> bytes:
    return issue_sla_token(key, CLAIMS, audience="runtime", pod_uid=pod, now=now, lifetime=lifetime).encode()


def test_a_token_is_verified_once_until_it_expires(verified: list[bytes]) -> None:
    clock = Clock()
    check = TokenCheck(Held(), "runtime", "pod", clock)
    good = token(clock.now)
    assert [check.check(good) for _ in range(5)] == [CLAIMS] * 5
    assert len(verified) == 1
    clock.now += 600 + 29
    assert check.check(good) == CLAIMS
    clock.now += 1
    assert [check.check(good) for _ in range(5)] == [SlaRefusal.EXPIRED] * 5
    assert len(verified) == 1


def test_refusals_are_remembered_as_far_as_they_last(verified: list[bytes]) -> None:
    clock = Clock()
    check = TokenCheck(Held(), "runtime", "pod", clock)
    foreign, early = token(clock.now, pod="other"), token(clock.now + 60)
    assert check.check(None) is check.check(b"") is SlaRefusal.MISSING
    assert [check.check(foreign) for _ in range(3)] == [SlaRefusal.WRONG_POD] * 3
    assert len(verified) == 1
    assert check.check(early) is SlaRefusal.NOT_YET_VALID
    clock.now += 60
    assert check.check(early) == CLAIMS


def test_a_change_of_keys_is_seen_at_once(verified: list[bytes]) -> None:
    clock, keys = Clock(), Held()
    check = TokenCheck(keys, "runtime", "pod", clock)
    old, new = token(clock.now), token(clock.now, SECOND)
    assert check.check(old) == CLAIMS
    assert check.check(new) is SlaRefusal.UNKNOWN_KEY
    assert keys.hints == 1
    keys.keys = parse_key_set(encode_key_set(FIRST, SECOND))
    assert check.check(old) == check.check(new) == CLAIMS
    keys.keys = parse_key_set(encode_key_set(SECOND))
    assert check.check(old) is SlaRefusal.UNKNOWN_KEY
    assert check.check(new) == CLAIMS


def test_a_key_that_is_not_published_yet_is_looked_for_as_long_as_its_tokens_come(
    verified: list[bytes],
) -> None:
    clock, keys = Clock(), Held()
    check = TokenCheck(keys, "runtime", "pod", clock)
    early = token(clock.now, SECOND)
    assert [check.check(early) for _ in range(3)] == [SlaRefusal.UNKNOWN_KEY] * 3
    assert keys.hints == 3  # a set that was fetched meanwhile and has not changed is the same object
    assert len(verified) == 1


def test_what_is_remembered_is_bounded_and_refusals_drive_out_no_good_token(
    verified: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_check, "MAX_REMEMBERED", 3)
    clock = Clock()
    check = TokenCheck(Held(), "runtime", "pod", clock)
    good = [token(clock.now) for _ in range(3)]
    for one in good:
        check.check(one)
    for number in range(10):
        head, payload, _ = good[0].split(b".")
        check.check(b".".join([head, payload, b"%04d" % number]))
    verified.clear()
    check.check(good[0])
    check.check(token(clock.now))  # the oldest goes: that is good[1] now
    verified.clear()
    check.check(good[0])
    assert verified == []
    check.check(good[1])
    assert verified == [good[1]]


def test_the_document_is_what_a_policy_engine_publishes() -> None:
    document = json.loads(encode_key_set(FIRST, SECOND))
    assert [key["kid"] for key in document["keys"]] == ["one", "two"]
