"""A machine's GPUs and their links as plain data, from a file or from a `GPUTopology`.

Hardware is discovered elsewhere (the device plugin's NVML adapter); every decision takes a `Machine`.
"""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from mcp2026.api.gpu_topology import GPUTopologyStatus
from mcp2026.topology.errors import MachineFormatError


class PcieAncestor(IntEnum):
    """Nearest common PCIe ancestor of two GPUs; the values are NVML's `nvmlGpuTopologyLevel_t`."""

    INTERNAL = 0
    """Two GPUs on one board."""
    SINGLE = 10
    """One PCIe switch between them."""
    MULTIPLE = 20
    """Several PCIe switches, no host bridge."""
    HOSTBRIDGE = 30
    """One host bridge."""
    NODE = 40
    """Several host bridges of one NUMA node."""
    SYSTEM = 50
    """The link between CPU sockets."""


@dataclass(frozen=True, slots=True)
class NvLink:
    """One NVLink: its number on the GPU, the GPU at its other end (None: an NVSwitch), its generation."""

    link: int
    peer: int | None
    version: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `memory_mib` is in MiB; `numa_node` is None where the system does not tell (-1 in Linux)."""

    index: int
    uuid: str
    product: str
    memory_mib: int
    pci_bus_id: str
    numa_node: int | None
    nvlinks: tuple[NvLink, ...] = ()
    """Those that are up."""
    inactive_links: tuple[int, ...] = ()
    """The numbers of those that are down."""
    healthy: bool = True
    degraded: bool = False
    """Usable, and less preferred."""
    mig_capable: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """All GPUs of one node. `pcie_ancestors[i][j]` is None where i == j."""

    name: str
    gpus: tuple[Gpu, ...]
    pcie_ancestors: tuple[tuple[PcieAncestor | None, ...], ...]
    driver: str = ""
    cuda: str = ""
    measured_latency_ns: tuple[tuple[int | None, ...], ...] = ()
    """[i][j], where it was measured; empty: nothing was."""


def machine_from_file(path: Path) -> Machine:
    """Read a machine from YAML, in the format of `tests/topologies`.

    Raises:
        MachineFormatError: the file cannot be read, is not YAML, or lacks a field; the message names both.

    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MachineFormatError(str(path), f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise MachineFormatError(str(path), f"not YAML: {error}") from error
    except RecursionError as error:
        raise MachineFormatError(str(path), "nested too deeply") from error
    try:
        return _machine_from_document(msgspec.convert(document, _Document))
    except (msgspec.ValidationError, ValueError) as error:
        raise MachineFormatError(str(path), str(error)) from error


class _LinkEntry(msgspec.Struct, frozen=True):
    link: int
    peer: int | Literal["nvswitch"]
    version: int


class _GpuEntry(msgspec.Struct, frozen=True):
    index: int
    uuid: str
    product: str
    memory_mib: int
    pci_bus_id: str
    numa_node: int | None = None
    nvlinks: tuple[_LinkEntry, ...] | None = None
    mig_capable: bool = False


class _Document(msgspec.Struct, frozen=True):
    name: str
    driver: str | float
    cuda: str | float
    gpus: tuple[_GpuEntry, ...]
    pcie_ancestor: tuple[tuple[str, ...], ...]


def _machine_from_document(document: _Document) -> Machine:
    size = len(document.gpus)
    if len(document.pcie_ancestor) != size or any(len(row) != size for row in document.pcie_ancestor):
        raise ValueError(f"pcie_ancestor is not a matrix of {size} x {size}, as many as gpus")
    gpus = tuple(
        Gpu(
            index=gpu.index,
            uuid=gpu.uuid,
            product=gpu.product,
            memory_mib=gpu.memory_mib,
            pci_bus_id=gpu.pci_bus_id,
            numa_node=gpu.numa_node if gpu.numa_node is not None and gpu.numa_node >= 0 else None,
            nvlinks=tuple(
                NvLink(link.link, link.peer if isinstance(link.peer, int) else None, link.version)
                for link in gpu.nvlinks or ()
            ),
            mig_capable=gpu.mig_capable,
        )
        for gpu in document.gpus
    )
    try:
        ancestors = tuple(tuple(_ancestor(name) for name in row) for row in document.pcie_ancestor)
    except KeyError as error:
        raise ValueError(f"pcie_ancestor: no PCIe ancestor is called {error}") from error
    return Machine(document.name, gpus, ancestors, str(document.driver), str(document.cuda))


def machine_from_topology(name: str, status: GPUTopologyStatus) -> Machine:
    """Return the machine that a `GPUTopology` describes.

    Raises:
        MachineFormatError: it names a PCIe ancestor that does not exist.

    """
    gpus = tuple(
        Gpu(
            index=gpu.index,
            uuid=gpu.uuid,
            product=gpu.product,
            memory_mib=gpu.memory_mi_b,
            pci_bus_id=gpu.pci_bus_id,
            numa_node=gpu.numa_node,
            nvlinks=tuple(NvLink(link.link, link.peer, link.version) for link in gpu.nvlinks),
            inactive_links=gpu.inactive_links,
            healthy=gpu.health != "Unhealthy",
            degraded=gpu.health == "Degraded",
            mig_capable=gpu.mig_capable,
        )
        for gpu in status.gpus
    )
    try:
        ancestors = tuple(tuple(_ancestor(level) for level in row) for row in status.pcie_ancestors)
    except KeyError as error:
        raise MachineFormatError(f"GPUTopology {name}", f"no PCIe ancestor is called {error}") from error
    return Machine(name, gpus, ancestors, status.driver, status.cuda)


def ancestor_name(ancestor: PcieAncestor | None) -> str:
    """Return the name that files and `GPUTopology` use for `ancestor`."""
    return "SELF" if ancestor is None else ancestor.name


def _ancestor(name: str) -> PcieAncestor | None:
    return None if name == "SELF" else PcieAncestor[name]
