"""A machine's GPUs and their links as plain data, from a file or from a `GPUTopology`.

Hardware is discovered elsewhere (the device plugin's NVML adapter); every decision takes a `Machine`.
"""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.gpu_topology import GPUTopology, GPUTopologyStatus, parse_gpu_topology
from mcp2026.api.names import GPU_TOPOLOGY_KIND
from mcp2026.api.yaml_errors import NOT_YAML
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


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Twenty times as fast where PyYAML has libyaml: 5 ms for eight GPUs on NVSwitches."""


class _LinkEntry(msgspec.Struct, frozen=True):
    link: int
    peer: int | Literal["nvswitch"]
    version: int


class _GpuEntry(msgspec.Struct, frozen=True):
    index: Annotated[int, msgspec.Meta(ge=0)]
    uuid: str
    product: str
    memory_mib: int
    pci_bus_id: str
    numa_node: int | None = None
    nvlinks: tuple[_LinkEntry, ...] | None = None
    inactive_links: tuple[int, ...] = ()
    healthy: bool = True
    degraded: bool = False
    mig_capable: bool = False


class _Document(msgspec.Struct, frozen=True):
    name: str
    driver: str | float
    cuda: str | float
    gpus: tuple[_GpuEntry, ...]
    pcie_ancestor: tuple[tuple[str, ...], ...]
    latency_ns: tuple[tuple[Annotated[int, msgspec.Meta(ge=0)] | None, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Description:
    """A machine, and where it was read from a `GPUTopology`, all that says."""

    machine: Machine
    topology: GPUTopology | None = None


def machine_from_file(path: Path) -> Machine:
    """Read a machine as `description_from_file` does."""
    return description_from_file(path).machine


def description_from_file(path: Path) -> Description:
    """Read a machine from YAML or JSON: in the format of `tests/topologies`, or a `GPUTopology`.

    The latter is what ``kubectl get gputopology NODE -o yaml`` prints; a list with one item will do.

    Raises:
        MachineFormatError: the file cannot be read, is not YAML, or lacks a field; the message names both.

    """
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)
    except OSError as error:
        raise MachineFormatError(str(path), f"cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise MachineFormatError(str(path), "nested too deeply") from error
    except NOT_YAML as error:
        raise MachineFormatError(str(path), f"not YAML: {error}") from error
    return description_from_document(str(path), document)


def description_from_document(source: str, document: Any) -> Description:
    """Return the machine that `document` describes; `source` is named in errors.

    Raises:
        MachineFormatError: a field is missing or wrong; the message names it.

    """
    if isinstance(document, dict) and "kind" in document:
        try:
            topology = parse_gpu_topology(_the_gpu_topology(source, document))
        except InvalidResourceError as error:
            raise MachineFormatError(source, str(error)) from error
        return Description(_machine_from_status(source, topology.name, topology.status), topology)
    try:
        return Description(_machine_from_entries(source, msgspec.convert(document, _Document)))
    except msgspec.ValidationError as error:
        raise MachineFormatError(source, str(error)) from error


def machine_document(machine: Machine) -> dict[str, Any]:
    """Return `machine` in the format of `tests/topologies`, from which the same machine can be read."""
    document: dict[str, Any] = {
        "name": machine.name,
        "driver": machine.driver,
        "cuda": machine.cuda,
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "product": gpu.product,
                "memory_mib": gpu.memory_mib,
                "pci_bus_id": gpu.pci_bus_id,
                "numa_node": gpu.numa_node,
                "nvlinks": [
                    {
                        "link": link.link,
                        "peer": "nvswitch" if link.peer is None else link.peer,
                        "version": link.version,
                    }
                    for link in gpu.nvlinks
                ],
                "inactive_links": list(gpu.inactive_links),
                "healthy": gpu.healthy,
                "degraded": gpu.degraded,
                "mig_capable": gpu.mig_capable,
            }
            for gpu in machine.gpus
        ],
        "pcie_ancestor": [[ancestor_name(ancestor) for ancestor in row] for row in machine.pcie_ancestors],
    }
    if machine.measured_latency_ns:
        document["latency_ns"] = [list(row) for row in machine.measured_latency_ns]
    return document


def _the_gpu_topology(source: str, document: dict[str, Any]) -> dict[str, Any]:
    items = document.get("items") if str(document["kind"]).endswith("List") else [document]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise MachineFormatError(source, "items: not a list of objects")
    if len(items) != 1:
        raise MachineFormatError(source, f"items: {len(items)} objects; allowed: one GPUTopology")
    if items[0].get("kind") != GPU_TOPOLOGY_KIND:
        raise MachineFormatError(source, f"kind: {items[0].get('kind')}; allowed: {GPU_TOPOLOGY_KIND}")
    for part in ("metadata", "spec", "status"):
        if not isinstance(items[0].get(part) or {}, dict):
            raise MachineFormatError(source, f"{part}: not an object")
    found: dict[str, Any] = items[0]
    return found


def _machine_from_entries(source: str, document: _Document) -> Machine:
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
            inactive_links=gpu.inactive_links,
            healthy=gpu.healthy,
            degraded=gpu.degraded,
            mig_capable=gpu.mig_capable,
        )
        for gpu in document.gpus
    )
    _check_indices(source, gpus)
    _check_square(source, "pcie_ancestor", document.pcie_ancestor, len(gpus))
    if document.latency_ns:
        _check_square(source, "latency_ns", document.latency_ns, len(gpus))
    return Machine(
        document.name,
        gpus,
        _ancestors(source, "pcie_ancestor", document.pcie_ancestor),
        str(document.driver),
        str(document.cuda),
        document.latency_ns,
    )


def machine_from_topology(name: str, status: GPUTopologyStatus) -> Machine:
    """Return the machine that a `GPUTopology` describes.

    Raises:
        MachineFormatError: two GPUs have one index, or the PCIe ancestors do not exist or are not one for
            each pair of GPUs.

    """
    return _machine_from_status(f"GPUTopology {name}", name, status)


def _machine_from_status(source: str, name: str, status: GPUTopologyStatus) -> Machine:
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
    _check_indices(source, gpus)
    _check_square(source, "pcieAncestors", status.pcie_ancestors, len(gpus))
    ancestors = _ancestors(source, "pcieAncestors", status.pcie_ancestors)
    return Machine(name, gpus, ancestors, status.driver, status.cuda)


def ancestor_name(ancestor: PcieAncestor | None) -> str:
    """Return the name that files and `GPUTopology` use for `ancestor`."""
    return "SELF" if ancestor is None else ancestor.name


def _check_indices(source: str, gpus: tuple[Gpu, ...]) -> None:
    seen: dict[int, int] = {}
    for place, gpu in enumerate(gpus):
        if gpu.index in seen:
            raise MachineFormatError(
                source, f"gpus[{place}].index: {gpu.index} is that of gpus[{seen[gpu.index]}]"
            )
        seen[gpu.index] = place


def _check_square(source: str, field: str, matrix: tuple[tuple[Any, ...], ...], size: int) -> None:
    if len(matrix) != size or any(len(row) != size for row in matrix):
        raise MachineFormatError(source, f"{field}: not a matrix of {size} x {size}, as many as gpus")


def _ancestors(
    source: str, field: str, names: tuple[tuple[str, ...], ...]
) -> tuple[tuple[PcieAncestor | None, ...], ...]:
    try:
        return tuple(tuple(None if name == "SELF" else PcieAncestor[name] for name in row) for row in names)
    except KeyError as error:
        allowed = ", ".join(["SELF", *PcieAncestor.__members__])
        raise MachineFormatError(source, f"{field}: {error}; allowed: {allowed}") from error
