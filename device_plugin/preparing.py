"""Makes what a choice of GPUs needs of the machine before the kubelet asks for the first one."""

from functools import partial
from typing import Final

from mcp2026.device_plugin.background import blocking_call
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.topology.score import prepare

USUAL_SIZES: Final = (1, 2, 4, 8)
"""How many GPUs containers usually ask for."""


async def keep_prepared(inventory: Inventory) -> None:
    """Prepare each machine that is read, beside the event loop, until cancelled."""
    while True:
        machine = inventory.snapshot.machine
        await blocking_call(partial(_prepare, inventory.snapshot))
        while inventory.snapshot.machine is machine:
            await inventory.next_after(inventory.snapshot)


def _prepare(snapshot: Snapshot) -> None:
    prepare(snapshot.graph, USUAL_SIZES)
