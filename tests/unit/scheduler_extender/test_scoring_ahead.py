"""States of nodes are scored before anyone asks."""

import asyncio
import json
from contextlib import suppress

from mcp2026.scheduler_extender.background import Background
from mcp2026.scheduler_extender.cluster_events import Kind, Seen, observe
from mcp2026.scheduler_extender.prioritizing import rank_nodes
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.scoring_ahead import score_ahead, score_states
from tests.fakes.clusters import filled_cache, pod, topology, whole

FOUR = "4xa100-pcie-nvlink-pairs"


def test_the_first_question_about_a_scored_state_computes_nothing() -> None:
    cache, memo = filled_cache([topology("a", FOUR), topology("b", FOUR, {0: "x/a"})]), ScoreMemo()
    score_states(cache.take_new_states(10), memo)
    computed = memo.misses
    for size in (1, 2, 4):
        rank_nodes(cache.snapshot(), ("a", "b"), whole(size), memo)
    assert memo.misses == computed > 0


def test_each_state_is_handed_out_once_and_nodes_that_do_not_change_bring_none() -> None:
    cache = filled_cache([topology(name, FOUR) for name in "abc"])
    assert len(cache.take_new_states(10)) == 1
    cache.apply(Seen(observe(Kind.GPU_TOPOLOGIES, json.dumps(topology("a", FOUR)).encode())))
    assert cache.take_new_states(10) == []


async def test_a_change_is_scored_while_nobody_asks() -> None:
    cache, memo, choices = filled_cache([topology("a", FOUR)]), ScoreMemo(), Background("choices")
    cache.take_new_states(10)
    scoring = asyncio.create_task(score_ahead(cache, memo, choices))
    await asyncio.sleep(0)
    cache.apply(Seen(observe(Kind.PODS, json.dumps(pod("p", 2, "a")).encode())))
    async with asyncio.timeout(10):
        while not memo.misses:
            await choices.call(lambda: None)
    scoring.cancel()
    with suppress(asyncio.CancelledError):
        await scoring
    choices.close()
