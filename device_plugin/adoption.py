"""Brings GPUs to how they shall be shared, where that takes nothing but another list of devices. Pure."""

from dataclasses import replace

from mcp2026.api.gpu_sharing import Sharing
from mcp2026.device_plugin.devices import CurrentSharing, Snapshot
from mcp2026.device_plugin.inventory import Inventory


def adopt(snapshot: Snapshot) -> Snapshot:
    """Return `snapshot` with each GPU shared as wanted, once nothing of it is held otherwise."""
    sharing = {gpu.uuid: _next(snapshot, gpu.uuid) for gpu in snapshot.machine.gpus}
    return replace(snapshot, sharing=sharing) if snapshot.wanted else snapshot


def _next(snapshot: Snapshot, uuid: str) -> CurrentSharing:
    current, wanted = snapshot.sharing_of(uuid), snapshot.wanted_of(uuid)
    if current.sharing == wanted and current.state in ("Active", "Draining"):
        return CurrentSharing(wanted)
    if uuid in snapshot.held_devices:
        return replace(current, state="Draining", message="waits for its pods to end")
    if wanted.mode in ("MPS", "MIG"):
        return CurrentSharing(Sharing(), "Failed", f"{wanted.mode} cannot be set up")
    return CurrentSharing(wanted)


async def keep_adopted(inventory: Inventory) -> None:
    """Adopt what is wanted at every change, until cancelled."""
    while True:
        inventory.change(adopt)
        await inventory.next_after(inventory.snapshot)
