"""The `GPUTopology` resource: one per node, named after it; the device plugin makes it and writes its status.

The spec says how the node's GPUs shall be shared, and is the administrator's; without it the plugin's own
configuration holds. The status says which GPUs there are, how they are linked, shared, how they are and who
holds them.
"""

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from mcp2026.api.conditions import Condition
from mcp2026.api.gpu_sharing import Sharing, SharingStatus
from mcp2026.api.schema_errors import explain

GpuHealth = Literal["Healthy", "Degraded", "Unhealthy"]
"""Degraded: usable and less preferred (a link is down, it is too hot). Unhealthy: nothing is placed on it."""


_Part = TypeVar("_Part")


class NvLink(msgspec.Struct, frozen=True, rename="camel"):
    """One NVLink of a GPU."""

    link: int
    peer: int | None = None
    """Index of the GPU at the other end; absent when the link ends at an NVSwitch."""
    version: int = 0
    """Generation of NVLink, 1 to 5; 0 when NVML does not tell."""


class NvLinkPeer(msgspec.Struct, frozen=True, rename="camel"):
    """A GPU reached by NVLink, directly or through an NVSwitch (table R3.1)."""

    index: int
    bandwidth_gb_per_s: int
    """Nominal, one direction, GB/s."""
    latency_ns: int


class Holder(msgspec.Struct, frozen=True, rename="camel"):
    """The container that holds a GPU, as the kubelet's pod-resources API tells."""

    namespace: str
    pod: str
    container: str


class Allocation(msgspec.Struct, frozen=True, rename="camel"):
    """What a container holds of a GPU: `units` of `resource`.

    `devices` names them, except for GiB of memory, which are all alike.
    """

    resource: str
    units: int
    namespace: str
    pod: str
    container: str
    devices: tuple[str, ...] = ()


class MigDevice(msgspec.Struct, frozen=True, rename="camel"):
    """A MIG device. `start` and `size` are in memory slices of the GPU."""

    uuid: str
    profile: str
    start: int
    size: int
    memory_mi_b: int = msgspec.field(name="memoryMiB", default=0)


class GpuStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One GPU of the node."""

    index: int
    uuid: str
    product: str
    memory_mi_b: int = msgspec.field(name="memoryMiB")
    pci_bus_id: str
    numa_node: int | None = None
    health: GpuHealth = "Healthy"
    health_reason: str = ""
    """In CamelCase, such as `XidError`; empty while healthy."""
    health_message: str = ""
    """What happened and what to do."""
    sharing: SharingStatus = SharingStatus()
    mig_capable: bool = False
    nvlinks: tuple[NvLink, ...] = ()
    """Those that are up."""
    inactive_links: tuple[int, ...] = ()
    """The numbers of those that are down."""
    peers: tuple[NvLinkPeer, ...] = ()
    """By bandwidth, descending."""
    held_by: Holder | None = None
    """Of a GPU in mode Exclusive."""
    allocations: tuple[Allocation, ...] = ()
    """Of a GPU in any other mode."""
    mig_devices: tuple[MigDevice, ...] = ()


MOST_GPUS = 64
"""Of one node."""


class GpuSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What one GPU shall be; by index, as that survives an exchange of the board."""

    index: Annotated[int, msgspec.Meta(ge=0)]
    sharing: Sharing


class GPUTopologySpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How the node's GPUs shall be shared: all of them, and single ones otherwise."""

    sharing: Sharing | None = None
    gpus: Annotated[tuple[GpuSpec, ...], msgspec.Meta(max_length=64)] = ()


class GpuTotals(msgspec.Struct, frozen=True, rename="camel"):
    """What the node has in all. Memory is in MiB.

    Allocatable is what is not unhealthy and can be given away now, free what of that nobody holds.
    """

    gpus: int = 0
    free: int = 0
    """GPUs of which nothing is held."""
    unhealthy: int = 0
    allocatable_memory_mi_b: int = msgspec.field(name="allocatableMemoryMiB", default=0)
    free_memory_mi_b: int = msgspec.field(name="freeMemoryMiB", default=0)


class GPUTopologyStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the device plugin saw.

    `pcie_ancestors[i][j]` names the nearest common PCIe ancestor of the GPUs at places i and j.
    """

    driver: str = ""
    cuda: str = ""
    totals: GpuTotals = GpuTotals()
    gpus: tuple[GpuStatus, ...] = ()
    pcie_ancestors: tuple[tuple[str, ...], ...] = ()
    observed_generation: int = 0
    """The generation of the spec that `gpus[].sharing` follows."""
    conditions: tuple[Condition, ...] = ()


class GPUTopology(msgspec.Struct, frozen=True, rename="camel"):
    """The topology of the node `name`."""

    name: str
    spec: GPUTopologySpec = GPUTopologySpec()
    status: GPUTopologyStatus = GPUTopologyStatus()
    generation: int = 0
    resource_version: str = ""


def parse_gpu_topology(resource: dict[str, Any]) -> GPUTopology:
    """Return the typed form of a resource in Kubernetes' JSON shape.

    Raises:
        InvalidResourceError: spec or status does not fit the schema.

    """
    metadata = resource.get("metadata") or {}
    return GPUTopology(
        name=metadata.get("name", ""),
        spec=_parse(resource, "spec", GPUTopologySpec),
        status=_parse(resource, "status", GPUTopologyStatus),
        generation=metadata.get("generation", 0),
        resource_version=metadata.get("resourceVersion", ""),
    )


def _parse(resource: dict[str, Any], part: str, shape: type[_Part]) -> _Part:
    document = resource.get(part) or {}
    try:
        return msgspec.convert(document, shape)
    except msgspec.ValidationError as error:
        raise explain(error, document, shape, part) from error
