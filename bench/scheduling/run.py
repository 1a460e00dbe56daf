"""One run, phase by phase; what was measured is written to a file after each."""

import asyncio
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec

from bench.errors import BenchError
from bench.scheduling import workload
from bench.scheduling.api_server import NODES, PODS, TOPOLOGIES, ApiServer
from bench.scheduling.bars import Attempted, Figures, Replayed, Times, table
from bench.scheduling.figures import pods_per_second
from bench.scheduling.fleet import Replay
from bench.scheduling.pod_history import PodHistory
from bench.scheduling.programs import Extender, Scheduler, VerbTimes, machine_seconds, processor_seconds
from bench.scheduling.scheduler_metrics import Attempts, attempts, both
from mcp2026.api.names import SCHEDULER_NAME
from tools.cluster.cluster import Cluster
from tools.cluster.progress import Report

ALONE = "kube-scheduler-alone"
PATIENCE_S = 120.0
"""Without a pod that is bound, until those that are left count as lost."""
READY_S = 180.0
READ_DECISIONS_EVERY = 700
"""Pods: the extender keeps the last 1,000 decisions, and to read them costs it some ms."""
GONE_OF_TEN = 1
"""Of ten pods that were bound before a kill so many are deleted, so that their GPUs are given away again."""


@dataclass
class Run:
    """The phases, over one cluster."""

    cluster: Cluster
    figures: Figures
    folder: Path
    say: Report
    nodes_to_score: int | None = None
    extender_niceness: int = 0

    async def measure(self) -> None:
        """Run all phases.

        Raises:
            BenchError: the API server failed, or the pods' events cannot be replayed.

        """
        count = self.figures.pods
        halves = count // 2, count - count // 2
        async with (
            ApiServer.connect(self.cluster.kubeconfig, self.say) as api,
            aiohttp.ClientSession() as session,
        ):
            await self._make_nodes(api)
            async with PodHistory.followed(api) as history:
                self._extender = Extender.on_a_free_port(
                    self.cluster, self.nodes_to_score, self.extender_niceness
                )
                self._api, self._history, self._session = api, history, session
                before = await self._alone("before", 0, halves[0])
                await self._cold_start()
                await self._with_extender()
                self._extender.kill()
                await api.delete_all_pods()
                after = await self._alone("after", halves[0], halves[1])
                self.figures.alone = _attempted(both(before, after))
                self._keep("alone, after")
                if self.figures.kills:
                    await self._kills()
                self.figures.watch_breaks = history.breaks
                self._keep("end")

    # ---- the phases ----

    async def _make_nodes(self, api: ApiServer) -> None:
        count = self.figures.nodes
        self.say(f"making {count} nodes with {workload.GPUS_PER_NODE} GPUs each")
        await api.create(NODES, workload.nodes(count))
        await api.create_with_status(TOPOLOGIES, workload.topologies(count))

    async def _alone(self, prefix: str, first: int, count: int) -> Attempts:
        self.say(f"{count} pods through kube-scheduler alone")
        scheduler = Scheduler.on_a_free_port(self.cluster, ALONE, None, self.say)
        await self._api.create(PODS, workload.pods(count, ALONE, prefix, first))
        scheduler.start()
        if not await self._history.wait_bound(prefix, count, PATIENCE_S):
            raise BenchError("kube-scheduler alone left pods unbound; its log tells why")
        times = self._history.times_of(prefix).values()
        self.figures.alone_per_s = [*self.figures.alone_per_s, pods_per_second(times)]
        page = await scheduler.metrics(self._session)
        scheduler.stop()
        await self._api.delete_all_pods()
        self._keep(f"alone, {prefix}")
        return attempts(page)

    async def _cold_start(self) -> None:
        self.figures.cold_start_s = await asyncio.to_thread(self._extender.start, READY_S)
        self._keep("cold start")
        self.say(f"the extender is ready after {self.figures.cold_start_s:.1f} s")

    async def _with_extender(self) -> None:
        figures, prefix, count = self.figures, "ours", self.figures.pods
        self.say(f"{count} pods through kube-scheduler and the extender")
        self._scheduler = Scheduler.on_a_free_port(
            self.cluster, SCHEDULER_NAME, self._extender.port, self.say
        )
        await self._api.create(PODS, workload.pods(count, SCHEDULER_NAME, prefix))
        first = len(self._history.changes)
        self._scheduler.start()
        await self._history.wait_bound(prefix, 1, PATIENCE_S)
        began, used, machine = time.monotonic(), processor_seconds(self.cluster), machine_seconds()
        seen: dict[str, VerbTimes] = {}
        for target in [*range(READ_DECISIONS_EVERY, count, READ_DECISIONS_EVERY), count]:
            await self._history.wait_bound(prefix, target, PATIENCE_S)
            decisions = await self._extender.decisions(self._session)
            seen |= {each.uid: each for each in decisions if each.node and each.uid not in seen}
        lasted = time.monotonic() - began
        self._note_processors(used, machine, lasted)
        figures.per_s = pods_per_second(self._history.times_of(prefix).values())
        figures.times = [_times(each) for each in seen.values()]
        figures.asked_again = sum(each.attempts > 1 for each in seen.values())
        figures.attempted = _attempted(attempts(await self._scheduler.metrics(self._session)))
        figures.memory_mib = self._extender.peak_memory_mib()
        figures.replayed = self._replayed(prefix, first)
        self._scheduler.stop()
        self._keep("with the extender")

    async def _kills(self) -> None:
        figures, prefix, kills = self.figures, "kills", self.figures.kills
        self.say(f"{figures.pods} pods while the extender is killed {kills} times")
        first = len(self._history.changes)
        await asyncio.to_thread(self._extender.start, READY_S)
        self._scheduler.start()
        made, gone = 0, 0
        memory = 0.0
        for number in range(kills):
            portion = figures.pods * (number + 1) // kills - made
            before = len(self._history.times_of(prefix))
            await self._api.create(PODS, workload.pods(portion, SCHEDULER_NAME, prefix, made))
            made += portion
            await self._history.wait_bound(prefix, before + max(1, portion // 4), PATIENCE_S)
            memory = max(memory, self._extender.peak_memory_mib())
            self._extender.kill()
            names = sorted(self._history.times_of(prefix))[gone :: 10 // GONE_OF_TEN]
            deleting = asyncio.create_task(self._api.delete(names))
            took = await asyncio.to_thread(self._extender.start, READY_S)
            await deleting
            figures.restarts_s = [*figures.restarts_s, took]
            bound = len(self._history.times_of(prefix))
            self.say(f"kill {number + 1}: ready again after {took:.1f} s, {bound} of {made} pods were bound")
            gone = (gone + 1) % 10
        await self._history.wait_bound(prefix, made, PATIENCE_S)
        figures.memory_over_kills_mib = max(memory, self._extender.peak_memory_mib())
        figures.replayed_over_kills = self._replayed(prefix, first)
        self._extender.kill()
        self._scheduler.stop()

    # ---- what is read out of them ----

    def _replayed(self, prefix: str, first: int) -> Replayed:
        replay = Replay(workload.offers(self.figures.nodes)).play(self._history.changes[first:])
        lost = self.figures.pods - len(self._history.times_of(prefix))
        return Replayed(self.figures.pods, lost, replay.doubles, replay.wrong, replay.moved, replay.problems)

    def _note_processors(self, before: dict[str, float], machine: tuple[float, float], lasted: float) -> None:
        used = processor_seconds(self.cluster)
        now = machine_seconds()
        shares = {name: (used[name] - before.get(name, 0.0)) / lasted for name in used}
        shares["other work on the machine"] = (now[0] - machine[0]) / lasted - sum(shares.values())
        shares["stolen by the hypervisor"] = (now[1] - machine[1]) / lasted
        self.figures.processor_share = shares

    def _keep(self, phase: str) -> None:
        """Write what is known so far: a run that is killed loses only the phase that it was in."""
        self.figures.load = {**self.figures.load, phase: os.getloadavg()[0]}
        (self.folder / "figures.json").write_bytes(msgspec.json.encode(self.figures))
        (self.folder / "table.md").write_text(table(self.figures) + "\n")


def _times(decision: VerbTimes) -> Times:
    whole = all(re.fullmatch(r"\d+ GPUs?", asked) for asked in decision.asked)
    return Times(whole, decision.fitting, decision.filter_ms, decision.prioritize_ms)


def _attempted(seen: Attempts) -> Attempted:
    return Attempted(
        seen.count,
        seen.mean_ms,
        seen.outside_plugins_ms,
        seen.at_most_ms(0.5),
        seen.at_most_ms(0.99),
    )
