"""What is a GPU, read once; and what machine a set of such readings makes."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pynvml

from mcp2026.device_plugin.adapters.nvml import mig
from mcp2026.device_plugin.adapters.nvml.bus_ids import normal_bus_id, numa_node_from_sysfs
from mcp2026.device_plugin.adapters.nvml.calls import (
    NONSENSE,
    CallError,
    Calls,
    number_between,
    text_field,
)
from mcp2026.device_plugin.adapters.nvml.links import (
    GpuLinks,
    KnownLinks,
    LinkReading,
    nvlinks,
    read_links,
)
from mcp2026.device_plugin.errors import NvmlError
from mcp2026.topology.machine import Gpu, PcieAncestor

NUMA_SET_WORDS = 16
"""Room for 1,024 NUMA nodes, the most that Linux has."""
MOST_MEMORY_MIB = 1 << 24
MOST_MINOR = (1 << 20) - 1
"""The kernel's minor numbers have 20 bits."""
MOST_CAPABILITY = 99

_UUID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,47}")
"""It is a device's name for the kubelet (63 characters, with a suffix for shares) and part of a list."""


@dataclass(frozen=True, slots=True)
class SystemReading:
    """What the driver says of itself; `count` is how many GPUs it has."""

    cuda: str
    count: int


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What the driver says of one GPU; `gpu` is without links. `mig` is None outside of MIG mode."""

    gpu: Gpu
    handle: Any
    links: tuple[LinkReading, ...]
    minor_number: int | None
    compute_capability: tuple[int, int] | None
    mig: mig.MigReading | None


def read_system(calls: Calls) -> SystemReading:
    """Return what the driver says of itself; a version that it does not tell is empty."""
    version = calls.optional(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    known = number_between(version, 1000, 99999)
    return SystemReading(
        "" if known is None else f"{known // 1000}.{known % 1000 // 10}",
        calls.ask(pynvml.nvmlDeviceGetCount),
    )


def driver_version(calls: Calls) -> str:
    """Return the driver's version, empty if it does not tell."""
    try:
        return calls.text(pynvml.nvmlSystemGetDriverVersion)
    except CallError as error:
        if error.code != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        return ""


def read_gpu(calls: Calls, index: int, sysfs: Path) -> GpuReading:
    """Read the GPU with this index; `CallError` if it does not answer or has no proper name."""
    handle = calls.ask(pynvml.nvmlDeviceGetHandleByIndex, index)
    bus_id = _bus_id(calls, handle)
    uuid = _uuid(calls, handle)
    product = calls.text(pynvml.nvmlDeviceGetName, handle)
    in_mig_mode = mig.is_enabled(calls, handle)
    gpu = Gpu(
        index=index,
        uuid=uuid,
        product=product,
        memory_mib=_memory_mib(calls, handle, in_mig_mode),
        pci_bus_id=bus_id,
        numa_node=_numa_node(calls, handle, bus_id, sysfs),
        mig_capable=in_mig_mode is not None,
    )
    return GpuReading(
        gpu=gpu,
        handle=handle,
        links=read_links(calls, handle),
        minor_number=number_between(calls.fact(pynvml.nvmlDeviceGetMinorNumber, handle), 0, MOST_MINOR),
        compute_capability=_compute_capability(calls, handle),
        mig=mig.read_instances(calls, handle) if in_mig_mode else None,
    )


def _bus_id(calls: Calls, handle: Any) -> str:
    try:
        return normal_bus_id(text_field(calls.ask(pynvml.nvmlDeviceGetPciInfo, handle), "busId"))
    except NvmlError as error:
        raise CallError("nvmlDeviceGetPciInfo", NONSENSE, str(error)) from error


def _uuid(calls: Calls, handle: Any) -> str:
    uuid = calls.text(pynvml.nvmlDeviceGetUUID, handle)
    if not _UUID.fullmatch(uuid):
        raise CallError("nvmlDeviceGetUUID", NONSENSE, f"gave the UUID {uuid!r}")
    return uuid


def _memory_mib(calls: Calls, handle: Any, in_mig_mode: bool | None) -> int:
    """Return MiB; 0 where the GPU shares the CPU's memory, or is in MIG mode and we are not root."""
    try:
        memory = calls.optional(pynvml.nvmlDeviceGetMemoryInfo, handle)
    except CallError as error:
        if not (in_mig_mode and error.code == pynvml.NVML_ERROR_NO_PERMISSION):
            raise
        memory = None
    return 0 if memory is None else number_between(memory.total >> 20, 0, MOST_MEMORY_MIB) or 0


def _numa_node(calls: Calls, handle: Any, bus_id: str, sysfs: Path) -> int | None:
    """Return the NUMA node next to the GPU; nvmlDeviceGetNumaNodeId gives that of its own memory."""
    scope = pynvml.NVML_AFFINITY_SCOPE_NODE
    words = calls.fact(pynvml.nvmlDeviceGetMemoryAffinity, handle, NUMA_SET_WORDS, scope)
    nodes: int = sum(word << 64 * place for place, word in enumerate(words or ()))
    return (nodes & -nodes).bit_length() - 1 if nodes else numa_node_from_sysfs(sysfs, bus_id)


def _compute_capability(calls: Calls, handle: Any) -> tuple[int, int] | None:
    answer = calls.fact(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    if answer is None:
        return None
    major, minor = (number_between(number, 0, MOST_CAPABILITY) for number in answer)
    return (major, minor) if major and minor is not None else None


def read_ancestors(calls: Calls, handle: Any, others: Mapping[int, Any]) -> dict[int, PcieAncestor]:
    """Return the nearest common ancestors with other GPUs, by index; the farthest where it is not told."""
    return {index: _ancestor(calls, handle, other) for index, other in others.items()}


def _ancestor(calls: Calls, a: Any, b: Any) -> PcieAncestor:
    try:
        return PcieAncestor(calls.ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, a, b))
    except (CallError, ValueError):
        return PcieAncestor.SYSTEM


# ---- what is made of them, without the driver ----


def doubles(readings: Mapping[int, GpuReading]) -> dict[int, str]:
    """Return the GPUs that have a name of another one, and why that will not do.

    Which of them a container would get is not known, so none of them can be offered.
    """
    uuids = Counter(reading.gpu.uuid for reading in readings.values())
    buses = Counter(reading.gpu.pci_bus_id for reading in readings.values())
    found = {}
    for index, reading in readings.items():
        if uuids[reading.gpu.uuid] > 1:
            found[index] = f"has the UUID of another GPU, {reading.gpu.uuid}"
        elif buses[reading.gpu.pci_bus_id] > 1:
            found[index] = f"has the PCI bus id of another GPU, {reading.gpu.pci_bus_id}"
    return found


def linked_gpu(reading: GpuReading, index_of_bus: Mapping[str, int]) -> Gpu:
    """Return the GPU with its links that are up."""
    return replace(reading.gpu, nvlinks=nvlinks(reading.links, index_of_bus))


def learn_links(known: KnownLinks, gpus: Mapping[int, Gpu], readings: Mapping[int, GpuReading]) -> None:
    """Take in which links are up."""
    known.learn(
        GpuLinks(
            gpu.uuid,
            gpu.product,
            frozenset(link.number for link in readings[index].links),
            any(link.peer is None for link in gpu.nvlinks),
        )
        for index, gpu in gpus.items()
    )
