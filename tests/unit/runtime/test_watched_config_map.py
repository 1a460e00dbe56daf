"""A ConfigMap is followed through connections that end, and through one that is lost and does not tell."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from kubernetes import client

from mcp2026.runtime.revisions import config_map
from mcp2026.runtime.revisions.config_map import ConfigMapWatch
from mcp2026.runtime.revisions.newest import Newest
from tests.contract.runtime.revision_api import RevisionApi
from tests.swallowing_relay import SwallowingRelay

PATIENCE = 20.0


@pytest.fixture
def api() -> Iterator[RevisionApi]:
    api = RevisionApi("1")
    yield api
    api.close()


@pytest.fixture
def relay(api: RevisionApi) -> Iterator[SwallowingRelay]:
    relay = SwallowingRelay(("127.0.0.1", api.port))
    yield relay
    relay.close()


@pytest.fixture
async def mailbox(relay: SwallowingRelay, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Newest]:
    """What a watch through the relay fills, with times that are twenty times as short."""
    monkeypatch.setattr(config_map, "WATCH_SECONDS", 1)
    monkeypatch.setattr(config_map, "SILENCE_SECONDS", 1.5)
    api = client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{relay.port}"))
    core, loop = client.CoreV1Api(api), asyncio.get_running_loop()
    watch, mailbox = ConfigMapWatch(core, "team-a", "model-serving", loop), Newest()
    watch.start(mailbox)
    yield mailbox
    watch.close()


def test_a_lost_connection_is_noticed_within_half_a_minute() -> None:
    assert config_map.WATCH_SECONDS < config_map.SILENCE_SECONDS <= 30


async def test_a_change_that_a_lost_connection_swallows_arrives_by_the_next_one(
    api: RevisionApi, relay: SwallowingRelay, mailbox: Newest
) -> None:
    assert await mailbox.take(PATIENCE) == b"1"
    relay.swallow()
    api.put("2")
    assert await asyncio.to_thread(relay.swallowed.wait, PATIENCE)
    relay.pass_on()
    assert await mailbox.take(PATIENCE) == b"2"
    api.put("3")
    assert await mailbox.take(PATIENCE) == b"3"


async def test_a_watch_that_begins_anew_says_nothing_that_was_said(api: RevisionApi, mailbox: Newest) -> None:
    """Else a revision that could not be served would be tried again each time, whatever its pause."""
    assert await mailbox.take(PATIENCE) == b"1"
    begun = api.watches
    async with asyncio.timeout(PATIENCE):
        while api.watches < begun + 2:  # noqa: ASYNC110 - the API's thread has no event of this loop
            await asyncio.sleep(0.02)
    assert await mailbox.take(0) is None
    api.put("2")
    assert await mailbox.take(PATIENCE) == b"2"


async def test_a_watch_that_begins_anew_brings_back_what_an_older_source_displaced(
    api: RevisionApi, mailbox: Newest
) -> None:
    """The mounted file may be a minute old, and say so just when the follower is busy."""
    assert await mailbox.take(PATIENCE) == b"1"
    mailbox.put(b"0")
    assert await mailbox.take(PATIENCE) == b"0"
    assert await mailbox.take(PATIENCE) == b"1"
