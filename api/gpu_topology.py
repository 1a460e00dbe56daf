"""The `GPUTopology` resource: one per node, named after it, written by the device plugin.

Its status says which GPUs the node has, how they are linked, how they are and who holds them.
"""

from typing import Any, Literal

import msgspec

from mcp2026.api.schema_errors import explain

GpuHealth = Literal["Healthy", "Unhealthy"]


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


class GpuStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One GPU of the node."""

    index: int
    uuid: str
    product: str
    memory_mi_b: int = msgspec.field(name="memoryMiB")
    pci_bus_id: str
    numa_node: int | None = None
    health: GpuHealth = "Healthy"
    nvlinks: tuple[NvLink, ...] = ()
    peers: tuple[NvLinkPeer, ...] = ()
    """By bandwidth, descending."""
    held_by: Holder | None = None


class GPUTopologyStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the device plugin saw.

    `pcie_ancestors[i][j]` names the nearest common PCIe ancestor of the GPUs at places i and j.
    """

    driver: str = ""
    cuda: str = ""
    gpus: tuple[GpuStatus, ...] = ()
    pcie_ancestors: tuple[tuple[str, ...], ...] = ()


class GPUTopology(msgspec.Struct, frozen=True, rename="camel"):
    """The topology of the node `name`."""

    name: str
    status: GPUTopologyStatus = GPUTopologyStatus()
    resource_version: str = ""


def parse_gpu_topology(resource: dict[str, Any]) -> GPUTopology:
    """Return the typed form of a resource in Kubernetes' JSON shape.

    Raises:
        InvalidResourceError: the status does not fit the schema.

    """
    metadata = resource.get("metadata") or {}
    document = resource.get("status") or {}
    try:
        status = msgspec.convert(document, GPUTopologyStatus)
    except msgspec.ValidationError as error:
        raise explain(error, document, GPUTopologyStatus, "status") from error
    return GPUTopology(metadata.get("name", ""), status, metadata.get("resourceVersion", ""))
