"""`python -m bench.scheduling`: thousands of played nodes, a real kube-scheduler, without and with extender.

Three phases on one control plane: pods through kube-scheduler alone (its own limit), the same pods through
kube-scheduler with the extender, and once more while the extender is killed again and again.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp

from bench.scheduling import workload
from bench.scheduling.api_server import NODES, PODS, TOPOLOGIES, ApiServer, Bound
from bench.scheduling.figures import double_bookings, percentile, pods_per_second
from bench.scheduling.programs import Extender, scheduler
from mcp2026.api.names import SCHEDULER_NAME
from tools.cluster.bring_up import up
from tools.cluster.cluster import Cluster
from tools.cluster.control_plane import ControlPlaneOptions
from tools.cluster.levels import Level

ALONE = "kube-scheduler-alone"
PATIENCE_S = 120.0


@dataclass
class Figures:
    """What was seen; times in ms unless named otherwise."""

    cold_start_s: float = 0.0
    alone_per_s: float = 0.0
    with_extender_per_s: float = 0.0
    verbs_ms: list[float] = field(default_factory=list)
    """filter and prioritize together, of each pod."""
    memory_mib: float = 0.0
    doubles: int = 0
    lost: int = 0
    lost_over_kills: int = 0
    doubles_over_kills: int = 0


async def measure(cluster: Cluster, nodes: int, pods: int, kills: int, say: Callable[[str], None]) -> Figures:
    """Run the three phases."""
    figures = Figures()
    async with ApiServer.connect(cluster.kubeconfig) as api, aiohttp.ClientSession() as session:
        say(f"making {nodes} nodes with {workload.GPUS_PER_NODE} GPUs each")
        await api.create_with_status(NODES, workload.nodes(nodes))
        await api.create_with_status(TOPOLOGIES, workload.topologies(nodes))

        extender = Extender.on_a_free_port(cluster)
        began = time.monotonic()
        extender.start(ready_s=120)
        figures.cold_start_s = time.monotonic() - began
        say(f"the extender is ready after {figures.cold_start_s:.1f} s")
        scheduler(cluster, ALONE, None, say)
        scheduler(cluster, SCHEDULER_NAME, extender.port, say)

        say(f"{pods} pods through kube-scheduler alone")
        bound = await _schedule(api, pods, ALONE, "alone")
        figures.alone_per_s = pods_per_second(bound)
        await api.delete_all_pods()

        say(f"{pods} pods through kube-scheduler and the extender")
        noting = asyncio.create_task(_note_times(extender, session, figures.verbs_ms))
        bound = await _schedule(api, pods, SCHEDULER_NAME, "ours")
        noting.cancel()
        figures.with_extender_per_s = pods_per_second(bound)
        figures.doubles, figures.lost = double_bookings(bound.values()), pods - len(bound)
        figures.memory_mib = extender.peak_memory_mib()
        await api.delete_all_pods()

        if kills:
            say(f"{pods} pods while the extender is killed {kills} times")
            watching = asyncio.create_task(_schedule(api, pods, SCHEDULER_NAME, "kills"))
            for _ in range(kills):
                await asyncio.sleep(2)
                extender.stop()
                await asyncio.to_thread(extender.start, 120)
            bound = await watching
            figures.lost_over_kills = pods - len(bound)
            figures.doubles_over_kills = double_bookings(bound.values())
        extender.stop()
    return figures


async def _schedule(api: ApiServer, count: int, name: str, prefix: str) -> dict[str, Bound]:
    watching = asyncio.create_task(api.bound_pods(prefix, count, PATIENCE_S))
    await asyncio.sleep(0.5)  # the watch starts before the first pod; one that started later would miss it
    await api.create(PODS, workload.pods(count, name, prefix))
    return await watching


async def _note_times(extender: Extender, session: aiohttp.ClientSession, times: list[float]) -> None:
    """Collect the time of each pod's answers before the extender forgets them."""
    seen: set[str] = set()
    while True:
        for decision in await extender.decisions(session):
            if decision["uid"] not in seen and decision.get("node"):
                seen.add(decision["uid"])
                times.append(decision["filterMs"] + decision["prioritizeMs"])
        await asyncio.sleep(1)


def table(figures: Figures, nodes: int, pods: int, kills: int) -> str:
    """Return the figures beside what is asked."""
    rows = [
        ("filter and prioritize, p50", f"{percentile(figures.verbs_ms, 0.5):.1f} ms", ""),
        ("filter and prioritize, p99", f"{percentile(figures.verbs_ms, 0.99):.1f} ms", "below 10 ms"),
        ("pods/s with the extender", f"{figures.with_extender_per_s:.0f}", "200, or as without"),
        ("pods/s of kube-scheduler alone", f"{figures.alone_per_s:.0f}", ""),
        ("memory of the extender, peak", f"{figures.memory_mib:.0f} MiB", "below 600 MiB"),
        ("from start to ready", f"{figures.cold_start_s:.1f} s", "below 15 s"),
        ("GPUs given away twice", str(figures.doubles), "0"),
        ("pods not bound", str(figures.lost), "0"),
    ]
    if kills:
        rows.append((f"not bound over {kills} kills", str(figures.lost_over_kills), "0"))
        rows.append((f"given away twice over {kills} kills", str(figures.doubles_over_kills), "0"))
    head = f"{nodes} nodes of {workload.GPUS_PER_NODE} GPUs, {pods} pods, all nodes scored"
    return "\n".join([head, *(f"  {what:<34}{seen:>12}   {asked}" for what, seen, asked in rows)])


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.scheduling", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--nodes", type=int, default=5_000, help="played nodes [%(default)s]")
    parser.add_argument("--pods", type=int, default=2_000, help="pods in each phase [%(default)s]")
    parser.add_argument("--kills", type=int, default=10, help="restarts of the extender [%(default)s]")
    given = parser.parse_args()

    def say(text: str) -> None:
        print(f"==> {text}", file=sys.stderr, flush=True)

    options = ControlPlaneOptions(scheduler=False)
    with up("bench-scheduling", Level.KWOK, options=options, owned=True, kwok_nodes=0, report=say) as cluster:
        cluster.apply((workload.TOPOLOGIES.parents[1] / "crds" / "gputopologies.yaml").read_text())
        cluster.wait("crd/gputopologies.mcp2026.io", "condition=Established")
        figures = asyncio.run(measure(cluster, given.nodes, given.pods, given.kills, say))
    print(table(figures, given.nodes, given.pods, given.kills))
    return 0 if not (figures.doubles or figures.lost or figures.lost_over_kills) else 1


if __name__ == "__main__":
    sys.exit(main())
