"""What was read of the cluster is left out of garbage collections once it is whole."""

import asyncio
import gc
import sys
from collections.abc import Iterator

import pytest

from mcp2026.scheduler_extender import pauses
from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.cluster_events import Kind, Listed


@pytest.fixture(autouse=True)
def interpreter() -> Iterator[None]:
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


async def test_nothing_is_frozen_before_all_kinds_were_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "LOOK_SECONDS", 0)
    cache = ClusterCache()
    keeping = asyncio.create_task(pauses.keep_pauses_short(cache))
    for kind in Kind:
        await asyncio.sleep(0)
        assert gc.get_freeze_count() == 0
        cache.apply(Listed(kind, ()))
    async with asyncio.timeout(10):
        while not gc.get_freeze_count():  # noqa: ASYNC110  # gc tells of nothing
            await asyncio.sleep(0)
    keeping.cancel()
