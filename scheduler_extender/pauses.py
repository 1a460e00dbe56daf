"""Keeps the interpreter's own pauses shorter than the answers that wait for them.

A full garbage collection looks at all objects of the cluster (0.1 million at 5,000 nodes: 60 ms and more),
and they are there to stay. A thread that computes hands over every 5 ms: that is longer than an answer takes.
"""

import asyncio
import gc
import sys

from mcp2026.scheduler_extender.cache import ClusterCache

SWITCH_SECONDS = 0.0005
"""Until a thread that computes hands over to one that waits."""
YOUNG_OBJECTS = 10_000
"""New objects between two looks at the young ones: an answer makes some thousands, which it drops itself."""
LOOK_SECONDS = 0.2


async def keep_pauses_short(cache: ClusterCache) -> None:
    """Leave what was read of the cluster out of garbage collections. Never returns.

    Frozen objects are still freed once nothing refers to them; only cycles of them would stay, and what is
    kept of the cluster has none.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    while cache.waiting_for:  # noqa: ASYNC110  # the cache tells of states of nodes, not of lists
        await asyncio.sleep(LOOK_SECONDS)
    gc.collect()
    gc.freeze()
    await asyncio.Event().wait()
