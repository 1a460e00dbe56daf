"""Translates a machine in the format of `tests/topologies` into the lines that the fake library reads."""

from pathlib import Path
from typing import Any

import yaml

from tests.fakes.nvml.mig_profiles import profiles_of

ANCESTORS = {
    "SELF": 0,
    "INTERNAL": 0,
    "SINGLE": 10,
    "MULTIPLE": 20,
    "HOSTBRIDGE": 30,
    "NODE": 40,
    "SYSTEM": 50,
}
REMOTE_GPU, REMOTE_SWITCH, REMOTE_UNKNOWN = 0x00, 0x02, 0xFF

KINDS = {
    "V100": (5, 70),
    "T4": (6, 75),
    "A100": (7, 80),
    "L40S": (8, 89),
    "RTX 4090": (8, 89),
    "GH200": (9, 90),
    "H100": (9, 90),
    "H200": (9, 90),
    "GB200": (10, 100),
    "B200": (10, 100),
}
"""`nvmlDeviceArchitecture_t` and ten times the compute capability, by what a product's name contains."""
UNKNOWN_KIND = (0xFFFFFFFF, 0)

LINK_VERSIONS = {1: 1, 2: 2, 3: 4, 4: 7, 5: 7}
"""What nvmlDeviceGetNvLinkVersion answers for a generation of NVLink (`nvmlNvlinkVersion_t`). Drivers were
seen to answer 7 (NVLink 5.0) on Hopper, whose NVLink is of generation 4: the fake does the same."""

OLD_EVENTS = 0x1F
NEW_EVENTS = OLD_EVENTS | 0x4000 | 0x8000
"""Types of events; a GPU that is unavailable, and the action that mends it, are told by drivers since 580."""
FIRST_DRIVER_OF_NEW_EVENTS = 580


def write_machine(source: Path, out: Path) -> Path:
    """Translate the machine in the YAML file `source` into the lines that the library reads."""
    out.write_text(compile_machine(yaml.safe_load(source.read_text(encoding="utf-8"))), encoding="utf-8")
    return out


def compile_machine(document: dict[str, Any]) -> str:
    """Return the lines that the library reads, for a machine in the format of `tests/topologies`."""
    driver = str(document["driver"])
    major, minor = str(document["cuda"]).split(".")
    new = int(driver.split(".")[0]) >= FIRST_DRIVER_OF_NEW_EVENTS
    lines = [f"driver {driver}", f"cuda {int(major) * 1000 + int(minor) * 10}"]
    bus_of = {gpu["index"]: gpu["pci_bus_id"] for gpu in document["gpus"]}
    for gpu in document["gpus"]:
        lines += _gpu_lines(gpu, bus_of, NEW_EVENTS if new else OLD_EVENTS)
    for a, row in enumerate(document["pcie_ancestor"]):
        lines += [f"ancestor {a} {b} {ANCESTORS[name]}" for b, name in enumerate(row)]
    return "\n".join(lines) + "\n"


def _gpu_lines(gpu: dict[str, Any], bus_of: dict[int, str], events: int) -> list[str]:
    index, product, capable = gpu["index"], gpu["product"], gpu.get("mig_capable")
    kinds = (kind for name, kind in KINDS.items() if name in product)
    architecture, capability = next(kinds, UNKNOWN_KIND)
    facts = {
        "uuid": gpu["uuid"],
        "name": product,
        "bus": gpu["pci_bus_id"],
        "memory_mib": gpu["memory_mib"],
        "numa_node": _or_unknown(gpu.get("numa_node")),
        "numa_id": _or_unknown(gpu.get("gpu_numa_id")),
        "mig": 1 if gpu.get("mig_enabled") else 0 if capable else -1,
        "architecture": architecture,
        "capability": capability,
        "events": events,
        "cpus": " ".join(f"{word:x}" for word in _cpu_words(gpu["cpu_affinity"])),
    }
    lines = [f"gpu {index} {name} {value}" for name, value in facts.items()]
    for link in gpu.get("nvlinks") or ():
        direct = isinstance(link["peer"], int)
        bus = bus_of[link["peer"]] if direct else link.get("remote_bus_id")
        remote = REMOTE_GPU if direct else REMOTE_SWITCH if bus else REMOTE_UNKNOWN
        lines.append(f"link {index} {link['link']} {remote} {LINK_VERSIONS[link['version']]} {bus or '-'}")
    for profile in profiles_of(product, gpu["memory_mib"]) if capable else ():
        starts = ",".join(map(str, profile.starts))
        numbers = (profile.index, profile.id, profile.slices, profile.most, profile.size, profile.memory_mib)
        lines.append(f"profile {index} {' '.join(map(str, numbers))} {profile.name} {starts}")
    return lines


def _or_unknown(number: int | None) -> int:
    return -1 if number is None else number


def _cpu_words(ranges: str) -> list[int]:
    mask = 0
    for part in str(ranges).split(","):
        first, _, last = part.partition("-")
        for cpu in range(int(first), int(last or first) + 1):
            mask |= 1 << cpu
    return [mask >> shift & (1 << 64) - 1 for shift in range(0, max(mask.bit_length(), 1), 64)]
