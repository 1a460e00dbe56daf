"""Asks the kubelet who holds which device and what it may still give away, in the order that proves it."""

import time

from mcp2026.api.gpu_topology import Holder
from mcp2026.device_plugin.adapters.allocatable import allocatable_devices
from mcp2026.device_plugin.adapters.kubelet_client import held_devices
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.settings import Settings
from mcp2026.device_plugin.sharing.observation import KubeletView


async def kubelet_view(settings: Settings, inventory: Inventory) -> KubeletView:
    """Return what the kubelet says now, and what was handed out that it does not name yet.

    What it may give away is asked first: what it lists as held afterwards is then all that can be held of
    devices which it may not give away any more.

    Raises:
        KubeletError: the kubelet does not tell.

    """
    asked_at = time.monotonic()
    allocatable = await allocatable_devices(settings.pod_resources_socket, settings.names)
    told = await held_devices(settings.pod_resources_socket, settings.names)
    held: dict[str, Holder | None] = {
        device: None for device, holding in inventory.snapshot.holdings.items() if holding.holder is None
    }
    held |= {device: one.holder for one in told for device in one.devices}
    return KubeletView(asked_at, held, allocatable)
