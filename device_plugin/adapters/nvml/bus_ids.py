"""PCI bus ids as NVML and sysfs write them."""

import re
from pathlib import Path

from mcp2026.device_plugin.errors import NvmlError

_BUS_ID = re.compile(r"([0-9A-Fa-f]{1,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")


def normal_bus_id(bus_id: str) -> str:
    """Return `bus_id` with a domain of eight digits, in upper case: `0000:3b:00.0` is `00000000:3B:00.0`.

    Raises:
        NvmlError: it is not a PCI bus id.

    """
    match = _BUS_ID.fullmatch(bus_id)
    if match is None:
        raise NvmlError(f"the driver gave a PCI bus id that cannot be read: {bus_id!r}")
    domain, rest = match.groups()
    return f"{int(domain, 16):08X}:{rest.upper()}"


def numa_node_from_sysfs(sysfs: Path, bus_id: str) -> int | None:
    """Return what the kernel says of the device `bus_id` (sysfs has domains of four digits)."""
    domain, _, rest = bus_id.partition(":")
    path = sysfs / "bus/pci/devices" / f"{int(domain, 16):04x}:{rest.lower()}" / "numa_node"
    try:
        node = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None
