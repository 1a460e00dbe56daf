"""A taint that may not be written holds up no event, nor the other way round."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from mcp2026.device_plugin.adapters.cluster import Cluster
from mcp2026.device_plugin.adapters.credentials import Credentials
from mcp2026.device_plugin.devices import GpuCondition, Snapshot
from mcp2026.device_plugin.health.node_report import NodeReport
from mcp2026.device_plugin.health.settings import HealthSettings
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.topology.machine import machine_from_file

MACHINE = machine_from_file(Path(__file__).parents[2] / "topologies" / "4xa100-pcie-nvlink-pairs.yaml")
UUIDS = [gpu.uuid for gpu in MACHINE.gpus]


class Server:
    """An API server with one node. `refuses` tells which requests are refused, with which status."""

    def __init__(self) -> None:
        self.refuses: Callable[[web.Request], int] = lambda _: 0
        self.taints: list[dict[str, str]] = []
        self.events: list[dict[str, Any]] = []
        self.happened = asyncio.Condition()

    async def answer(self, request: web.Request) -> web.Response:
        if status := self.refuses(request):
            return web.json_response({"message": "no"}, status=status)
        async with self.happened:
            if request.method == "POST":
                self.events.append(await request.json())
            elif request.method == "PATCH":
                self.taints = (await request.json())["spec"]["taints"] or []
            self.happened.notify_all()
        return web.json_response({"metadata": {"resourceVersion": "1"}, "spec": {"taints": self.taints}})

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10), self.happened:
            await self.happened.wait_for(condition)


@pytest.mark.parametrize("status", [403, 409, 500])
@pytest.mark.parametrize("refused", ["POST", "PATCH"])
async def test_one_report_that_is_refused_does_not_hold_up_the_other(
    refused: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    server.refuses = lambda request: status if request.method == refused else 0
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    cluster = Cluster(lambda: Credentials(f"http://{host}:{port}", False))
    inventory, looked = Inventory(Snapshot(MACHINE)), asyncio.Event()
    looked.set()
    work = asyncio.create_task(NodeReport(inventory, cluster, "n", HealthSettings(), looked).run())
    try:
        for failed in (1, 2, 3):
            bad = {uuid: GpuCondition("Unhealthy", f"Xid{failed}", "") for uuid in UUIDS[:failed]}
            inventory.change(lambda now, bad=bad: replace(now, conditions=bad))
            if refused == "POST":
                await server.until(lambda value=f"Xid{failed}": value in str(server.taints))
            else:
                await server.until(lambda uuid=UUIDS[failed - 1]: uuid in str(server.events))
        assert not work.done()
        right = "create on events" if refused == "POST" else "get and patch on nodes"
        assert (f"the service account needs {right}" in caplog.text) == (status == 403)
    finally:
        work.cancel()
        await cluster.close()
        await runner.cleanup()
