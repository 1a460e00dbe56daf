"""The API server's protocol without sockets: requests out, bytes in, events out."""

import json
from typing import Any

import msgspec
import pytest

from mcp2026.scheduler_extender.cluster_events import Gone, Kind, Listed, ObservedNode, Seen
from mcp2026.scheduler_extender.errors import WatchExpiredError, WatchRefusedError
from mcp2026.scheduler_extender.watching import PAGE_SIZE, ListWatch


def page(names: list[str], version: str, more: str = "") -> bytes:
    metadata = {"resourceVersion": version, "continue": more}
    return json.dumps(
        {"metadata": metadata, "items": [{"metadata": {"name": name}} for name in names]}
    ).encode()


def line(event: str, name: str, version: str) -> bytes:
    return json.dumps(
        {"type": event, "object": {"metadata": {"name": name, "resourceVersion": version}}}
    ).encode()


def error_line(code: int, message: str = "too old resource version: 1 (9)") -> bytes:
    return json.dumps(
        {"type": "ERROR", "object": {"kind": "Status", "code": code, "message": message}}
    ).encode()


def query(listwatch: ListWatch) -> dict[str, str]:
    return dict(listwatch.next_request(300).query)


def listed() -> ListWatch:
    listwatch = ListWatch(Kind.NODES)
    listwatch.receive_page(page(["a"], "7"))
    return listwatch


def test_a_list_comes_in_pages_and_counts_only_when_whole() -> None:
    listwatch = ListWatch(Kind.NODES, "spec.unschedulable=false")
    assert query(listwatch) == {"fieldSelector": "spec.unschedulable=false", "limit": str(PAGE_SIZE)}
    assert listwatch.receive_page(page(["a"], "7", more="token")) is None
    assert query(listwatch)["continue"] == "token"
    assert listwatch.receive_page(page(["b"], "7")) == Listed(
        Kind.NODES, (ObservedNode("a"), ObservedNode("b"))
    )


def test_the_watch_starts_where_the_list_ended() -> None:
    request = listed().next_request(300)
    assert request.watch
    assert dict(request.query) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "7",
        "timeoutSeconds": "300",
    }


@pytest.mark.parametrize(
    ("sent", "event"),
    [
        pytest.param(line("ADDED", "b", "8"), Seen(ObservedNode("b")), id="added"),
        pytest.param(line("MODIFIED", "a", "8"), Seen(ObservedNode("a")), id="modified"),
        pytest.param(line("DELETED", "a", "8"), Gone(Kind.NODES, "a"), id="deleted"),
        pytest.param(line("BOOKMARK", "", "8"), None, id="a bookmark tells nothing but the version"),
    ],
)
def test_every_line_moves_the_version_on(sent: bytes, event: Any) -> None:
    listwatch = listed()
    assert listwatch.receive_line(sent) == event
    assert query(listwatch)["resourceVersion"] == "8"


def test_an_expired_version_leads_to_a_new_list() -> None:
    listwatch = listed()
    with pytest.raises(WatchExpiredError, match="too old"):
        listwatch.receive_line(error_line(410))
    assert not listwatch.next_request(300).watch


def test_a_list_that_expired_between_pages_starts_again_without_the_old_pages() -> None:
    listwatch = ListWatch(Kind.NODES)
    listwatch.receive_page(page(["a"], "7", more="token"))
    with pytest.raises(WatchExpiredError):
        listwatch.refuse(410, "the continue token is too old")
    assert "continue" not in query(listwatch)
    assert listwatch.receive_page(page(["b"], "9")) == Listed(Kind.NODES, (ObservedNode("b"),))


def test_a_server_that_never_knew_our_version_is_listed_anew() -> None:
    listwatch = listed()
    with pytest.raises(WatchRefusedError, match="Too large resource version") as refused:
        listwatch.receive_line(error_line(504, "Too large resource version: 7, current: 3"))
    assert refused.value.status == 504
    assert not listwatch.next_request(300).watch


def test_a_busy_server_is_asked_the_same_again() -> None:
    listwatch = listed()
    with pytest.raises(WatchRefusedError):
        listwatch.refuse(429, "too many requests")
    assert query(listwatch)["resourceVersion"] == "7"


@pytest.mark.parametrize(
    "sent", [b"", b"{", b'{"type":"ADDED"}', b'{"type":"ADDED","object":{"metadata":7}}']
)
def test_a_line_that_is_no_event_is_refused_and_moves_nothing(sent: bytes) -> None:
    listwatch = listed()
    with pytest.raises(msgspec.DecodeError):
        listwatch.receive_line(sent)
    assert query(listwatch)["resourceVersion"] == "7"
