"""The first choice of GPUs finds its lists made, also on a machine that was read anew."""

import asyncio
from dataclasses import replace
from pathlib import Path

from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.preparing import USUAL_SIZES, keep_prepared
from mcp2026.topology import search
from mcp2026.topology.machine import machine_from_file

MACHINE = machine_from_file(Path(__file__).parents[2] / "topologies" / "dgx-2-16xv100.yaml")


async def test_each_machine_is_prepared_when_it_was_read() -> None:
    inventory = Inventory(Snapshot(MACHINE))
    search._machine_sets.cache_clear()
    work = asyncio.create_task(keep_prepared(inventory))
    for links in (6, 5):
        gpus = tuple(replace(gpu, nvlinks=gpu.nvlinks[:links]) for gpu in MACHINE.gpus)
        inventory.change(lambda now, gpus=gpus: replace(now, machine=replace(MACHINE, gpus=gpus)))
        async with asyncio.timeout(10):
            while search._machine_sets.cache_info().currsize < len(USUAL_SIZES):  # noqa: ASYNC110  (a cache)
                await asyncio.sleep(0.01)
        search._machine_sets.cache_clear()
    work.cancel()
