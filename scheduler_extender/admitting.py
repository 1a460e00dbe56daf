"""Answers the members of gangs: plans beside the event loop, and holds what was planned (0116).

A gang of hundreds takes tens of milliseconds to plan and to hold. Both are done a little at a time, so that
other pods' questions are answered between.
"""

import asyncio
from collections.abc import Callable
from time import thread_time

from mcp2026.scheduler_extender.background import Background
from mcp2026.scheduler_extender.cluster_events import ObservedPod
from mcp2026.scheduler_extender.errors import NoRoomError
from mcp2026.scheduler_extender.gang_planning import GangPlan, Planned
from mcp2026.scheduler_extender.gangs import Gangs, Planning, Verdict
from mcp2026.scheduler_extender.preferences import Preferences
from mcp2026.scheduler_extender.score_memo import ScoreMemo

PLANS = 8
"""How often a gang is planned again because the watch changed its nodes meanwhile."""


class Admission:
    """Of one event loop. `choices` is the thread that owns `memo`; `clock` gives seconds that only grow."""

    def __init__(
        self, gangs: Gangs, memo: ScoreMemo, choices: Background, clock: Callable[[], float]
    ) -> None:
        self._gangs = gangs
        self._memo = memo
        self._choices = choices
        self._clock = clock
        self._one_gang = asyncio.Lock()

    async def admit(self, pod: ObservedPod, node_names: tuple[str, ...], preferences: Preferences) -> Verdict:
        """Return which of the nodes a member of a gang may go to. One gang is planned at a time.

        Raises:
            NoRoomError: nodes changed each time while their room was planned.

        """
        async with self._one_gang:
            for _ in range(PLANS):
                answer = self._gangs.begin(pod, node_names, self._clock())
                if isinstance(answer, Verdict):
                    return answer
                planned = await self._plan(answer, preferences)
                if await self._hold(answer, planned, preferences.policy.gang_deadline_s):
                    return self._gangs.finish(answer, planned, self._clock())
        raise NoRoomError("the cluster changes too fast to place a gang; try again")

    async def _plan(self, planning: Planning, preferences: Preferences) -> Planned:
        plan = GangPlan(
            planning.snapshot, planning.node_names, planning.pod, planning.missing, self._memo, preferences
        )
        while (planned := await self._choices.call(plan.advance, thread_time)) is None:
            pass
        return planned

    async def _hold(self, planning: Planning, planned: Planned, deadline_s: float) -> bool:
        until = self._clock() + deadline_s
        for places in planned.portions():
            if not self._gangs.hold(planning, places, until):
                return False
            await asyncio.sleep(0)  # let others be answered
        return True
