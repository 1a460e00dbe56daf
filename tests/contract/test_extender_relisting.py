"""A kind that is listed anew on request: what a new leader does before it answers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mcp2026.scheduler_extender.adapters.cluster_watch import ClusterWatch, cluster_configuration
from mcp2026.scheduler_extender.cluster_events import ClusterEvent, Kind, Listed
from tests.contract.test_extender_process import PAIRS, ApiServer
from tests.fakes.clusters import node, pod, topology
from tests.loopback import kubeconfig_for


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    await server.start()
    await server.put(Kind.NODES, node("n"), "ADDED")
    await server.put(Kind.GPU_TOPOLOGIES, topology("n", PAIRS), "ADDED")
    yield server
    await server.stop()


async def test_what_was_bound_before_the_request_is_known_when_it_is_answered(
    tmp_path: Path, api: ApiServer
) -> None:
    events: list[ClusterEvent] = []
    configuration = await cluster_configuration(kubeconfig_for(api.port, tmp_path))
    watch = ClusterWatch(configuration, events.append, lambda _: None)
    running = asyncio.create_task(watch.run())
    try:
        async with asyncio.timeout(20):
            for number in range(5):
                await api.put(Kind.PODS, pod(f"p{number}", 1, "n"), "ADDED")
                await asyncio.gather(watch.relist(Kind.PODS), watch.relist(Kind.PODS))
                listed = [each for each in events if isinstance(each, Listed) and each.kind is Kind.PODS]
                assert {each.key for each in listed[-1].objects} >= {f"default/p{number}"}
            await watch.relist(Kind.NODES)
    finally:
        running.cancel()
        await asyncio.wait((running,))
    assert api.lists[Kind.PODS] >= 5
    assert running.cancelled(), "and no other error"
