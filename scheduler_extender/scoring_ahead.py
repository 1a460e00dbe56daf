"""Scores what a node has become before anyone asks: the first question about it then finds the answer.

A binding or an event changes one node at a time, while a question is about thousands. Sizes that are seldom
asked for are scored when they are.
"""

import asyncio
from collections.abc import Sequence

from mcp2026.scheduler_extender.background import Background
from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.choosing import unpromised
from mcp2026.scheduler_extender.policy import DEFAULT_POLICY, Policy, PolicyInForce
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import NodeGpus

SIZES = (1, 2, 4, 8)
AT_ONCE = 8
"""States that are scored in one go: a question that comes meanwhile waits a few ms at most."""


async def score_ahead(
    cache: ClusterCache, memo: ScoreMemo, choices: Background, in_force: PolicyInForce | None = None
) -> None:
    """Score each new state of a node in the thread that owns `memo`. Never returns."""
    in_force = in_force or PolicyInForce()
    news = asyncio.Event()
    cache.on_new_state = news.set
    news.set()  # what came before anyone listened
    while True:
        await news.wait()
        news.clear()
        while states := cache.take_new_states(AT_ONCE):
            await choices.call(score_states, states, memo, in_force.policy)


def score_states(states: Sequence[NodeGpus], memo: ScoreMemo, policy: Policy = DEFAULT_POLICY) -> None:
    """Score the best sets of the usual sizes in each of `states`, for pods without a promise."""
    for gpus in states:
        free = unpromised(gpus, memo)
        for size in SIZES:
            if size <= len(free):
                memo.best(gpus, free, size, policy.neutral)
