"""`python -m bench.scheduling.gangs`: what gangs of hundreds cost other pods, on thousands of nodes.

The extender's own server over a cluster made in memory, of which a part is taken, so that nodes are in
hundreds of states. Another process asks filter for single pods all the time, while gangs are admitted here.
"""

import argparse
import asyncio
import gc
import json
import random
import statistics
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic, perf_counter
from typing import Any

import aiohttp
from aiohttp import web

from bench.scheduling.figures import percentile
from bench.scheduling.workload import topologies
from mcp2026.api.gpu_assignment import GpuAssignment
from mcp2026.api.names import GANG_ANNOTATION, GANG_SIZE_ANNOTATION, GPU_RESOURCE
from mcp2026.scheduler_extender.background import Background
from mcp2026.scheduler_extender.binding import Binder
from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.cluster_events import Kind, Listed, ObservedPod, observe
from mcp2026.scheduler_extender.errors import BindingRefusedError
from mcp2026.scheduler_extender.gangs import Gangs
from mcp2026.scheduler_extender.metrics import Metrics
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.server import ExtenderServer
from mcp2026.scheduler_extender.wire import BindingArgs

TAKEN = 0.3
"""The part of all GPUs that is held."""
PAUSE_S = 0.02
"""Between two questions about single pods."""
ROUND_S = 1.0
"""For one gang: its first members are asked about at once, then the others' pods have the extender alone."""
MEMBERS_ASKED = 8


def some_cluster(nodes: int) -> ClusterCache:
    """Return a cluster in which each GPU is taken with the chance `TAKEN`, always the same."""
    draw = random.Random(1)
    documents = list(topologies(nodes))
    for document in documents:
        document["status"] = json.loads(json.dumps(document["status"]))
        for gpu in document["status"]["gpus"]:
            if draw.random() < TAKEN:
                gpu["heldBy"] = {"namespace": "other", "pod": "holder", "container": "main"}
    cache = ClusterCache()
    for kind, found in (
        (Kind.NODES, [{"metadata": document["metadata"]} for document in documents]),
        (Kind.GPU_TOPOLOGIES, documents),
        (Kind.PODS, []),
        (Kind.BUDGETS, []),
    ):
        cache.apply(Listed(kind, tuple(observe(kind, json.dumps(each).encode()) for each in found)))
    return cache


class Nowhere:
    """Where nothing is bound: only filter is asked."""

    async def bind(self, args: BindingArgs, _: GpuAssignment, __: float) -> None:
        """Refuse."""
        raise BindingRefusedError(f"{args.name} is bound nowhere")

    async def read_pod(self, args: BindingArgs) -> ObservedPod:
        """Refuse."""
        raise BindingRefusedError(f"{args.name} is nowhere")


@asynccontextmanager
async def serving(cache: ClusterCache) -> AsyncIterator[str]:
    """Serve the verbs over `cache` on loopback; give the address."""
    memo, choices, gangs = ScoreMemo(), Background("choices"), Gangs(cache)
    binder = Binder(cache, memo, Nowhere(), choices, monotonic, gangs)
    server = ExtenderServer(cache, memo, Metrics(cache, memo), {}, choices, binder, gangs)
    runner = web.AppRunner(server.verbs_app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        server.close()
        choices.close()


def body(name: str, gpus: int, nodes: list[str], gang: str = "", size: int = 0) -> bytes:
    """Return the question about a pod that asks for `gpus`."""
    annotations = {GANG_ANNOTATION: gang, GANG_SIZE_ANNOTATION: str(size)} if gang else {}
    metadata = {"namespace": "default", "name": name, "uid": f"uid-{name}", "annotations": annotations}
    container = {"name": "main", "resources": {"limits": {GPU_RESOURCE: str(gpus)}}}
    return json.dumps(
        {"Pod": {"metadata": metadata, "spec": {"containers": [container]}}, "NodeNames": nodes}
    ).encode()


async def ask(session: aiohttp.ClientSession, question: bytes) -> tuple[float, dict[str, Any]]:
    """Ask filter; return how long that took, in ms, and the answer."""
    began = perf_counter()
    async with session.post("/v1/filter", data=question) as response:
        answer = await response.read()
    return (perf_counter() - began) * 1e3, json.loads(answer)


async def ask_about_single_pods(address: str, nodes: list[str]) -> None:
    """Say so and ask, until standard input ends; print the times."""
    print("asking", flush=True)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    times = []
    async with aiohttp.ClientSession(address) as session:
        while not ended.done():
            times.append((await ask(session, body("single", 1, nodes)))[0])
            await asyncio.sleep(PAUSE_S)
    print(json.dumps(times))


async def measure(nodes: int, sizes: list[int], gpus: int, rounds: int) -> None:
    """Print the figures without gangs, and with those of each of `sizes`."""
    cache = some_cluster(nodes)
    names = list(cache.snapshot().nodes)
    states = len(set(cache.snapshot().states.values()))
    print(f"{nodes} nodes in {states} states; members ask for {gpus} GPUs; times of filter in ms")
    gc.collect()
    gc.freeze()
    async with serving(cache) as address, aiohttp.ClientSession(address) as session:
        for size in [0, *sizes]:
            program = [sys.executable, "-m", "bench.scheduling.gangs", f"--ask={address}", f"--nodes={nodes}"]
            asking = await asyncio.create_subprocess_exec(*program, stdin=PIPE, stdout=PIPE)
            assert asking.stdout is not None
            await asking.stdout.readline()
            firsts: list[float] = []
            further: list[float] = []
            for number in range(rounds):
                began = perf_counter()
                for member in range(min(size, MEMBERS_ASKED)):
                    question = body(f"g{number}-{member}", gpus, names, f"g{number}", size)
                    took, answer = await ask(session, question)
                    assert answer["NodeNames"], answer
                    (further if member else firsts).append(took)
                await asyncio.sleep(max(0.0, ROUND_S - (perf_counter() - began)))
                cache.expire(float("inf"))
            told, _ = await asking.communicate(b"")
            print(row(size, firsts, further, json.loads(told)))


def row(size: int, firsts: list[float], further: list[float], others: list[float]) -> str:
    """Return a line of the table."""
    of_gang = (
        f"first member {statistics.median(firsts):7.1f}, further ones {statistics.median(further):5.1f}; "
        if firsts
        else ""
    )
    p50, p99 = percentile(others, 0.5), percentile(others, 0.99)
    return f"gangs of {size:3}: {of_gang}other pods p50 {p50:.1f}, p99 {p99:.1f}, max {max(others):.1f}"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.scheduling.gangs", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--nodes", type=int, default=5_000, help="nodes of 8 GPUs [%(default)s]")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[64, 256], help="members of each [%(default)s]"
    )
    parser.add_argument("--gpus", type=int, default=2, help="GPUs of a member [%(default)s]")
    parser.add_argument("--rounds", type=int, default=10, help="gangs of each size [%(default)s]")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.ask:
        names = [document["metadata"]["name"] for document in topologies(given.nodes)]
        asyncio.run(ask_about_single_pods(given.ask, names))
    else:
        asyncio.run(measure(given.nodes, given.sizes, given.gpus, given.rounds))


if __name__ == "__main__":
    main()
