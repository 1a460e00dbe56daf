"""The node's `GPUTopology` as the plugin sees it: GPUs, links, peers, health and who holds what. Pure."""

from datetime import datetime
from typing import Any, Final

import msgspec

from mcp2026.api.conditions import Condition
from mcp2026.api.gpu_sharing import SharingStatus
from mcp2026.api.gpu_topology import (
    Allocation,
    GpuStatus,
    GPUTopologyStatus,
    Holder,
    MigDevice,
    NvLink,
    NvLinkPeer,
)
from mcp2026.api.names import API_VERSION, GPU_MEMORY_RESOURCE, GPU_TOPOLOGY_KIND
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.node_conditions import node_conditions
from mcp2026.device_plugin.totals import totals
from mcp2026.topology.machine import Gpu, ancestor_name

LONGEST_MESSAGE: Final = 1024
"""Characters; the schema's limit."""


def topology_status(
    snapshot: Snapshot, conditions: tuple[Condition, ...], now: datetime
) -> GPUTopologyStatus:
    """Return what `snapshot` tells of the node; `conditions` are those so far, `now` is in UTC."""
    machine = snapshot.machine
    ancestors = tuple(tuple(ancestor_name(ancestor) for ancestor in row) for row in machine.pcie_ancestors)
    return GPUTopologyStatus(
        driver=machine.driver,
        cuda=machine.cuda,
        totals=totals(snapshot),
        gpus=tuple(_gpu_status(snapshot, place, gpu) for place, gpu in enumerate(machine.gpus)),
        pcie_ancestors=ancestors,
        observed_generation=snapshot.spec_generation,
        conditions=node_conditions(snapshot, conditions, now),
    )


def _gpu_status(snapshot: Snapshot, place: int, gpu: Gpu) -> GpuStatus:
    machine, condition = snapshot.machine, snapshot.conditions.get(gpu.uuid)
    current = snapshot.sharing_of(gpu.uuid)
    replicated = current.sharing.mode in ("TimeSlice", "MPS") and current.sharing.unit == "Replica"
    return GpuStatus(
        index=gpu.index,
        uuid=gpu.uuid,
        product=gpu.product,
        memory_mi_b=gpu.memory_mib,
        pci_bus_id=gpu.pci_bus_id,
        numa_node=gpu.numa_node,
        health=condition.health if condition else "Healthy",
        health_reason=condition.reason if condition else "",
        health_message=condition.message[:LONGEST_MESSAGE] if condition else "",
        sharing=SharingStatus(
            mode=current.sharing.mode,
            unit=current.sharing.unit,
            replicas=current.sharing.shares if replicated else None,
            state=current.state,
            message=current.message[:LONGEST_MESSAGE],
        ),
        mig_capable=gpu.mig_capable,
        inactive_links=gpu.inactive_links,
        nvlinks=tuple(NvLink(link.link, link.peer, link.version) for link in gpu.nvlinks),
        peers=tuple(
            NvLinkPeer(machine.gpus[peer.index].index, peer.bandwidth_gb_per_s, peer.latency_ns)
            for peer in snapshot.graph.nvlink_peers(place)
        ),
        held_by=_holder(snapshot, gpu.uuid),
        allocations=_allocations(snapshot, gpu.uuid),
        mig_devices=tuple(
            MigDevice(
                instance.uuid,
                instance.profile,
                instance.start,
                instance.size,
                memory_mi_b=instance.memory_mib,
            )
            for instance in snapshot.mig_instances.get(gpu.uuid, ())
        ),
    )


def _holder(snapshot: Snapshot, uuid: str) -> Holder | None:
    """Return the container that holds the GPU alone."""
    holding = snapshot.holdings.get(uuid)
    return holding.holder if holding else None


def _allocations(snapshot: Snapshot, uuid: str) -> tuple[Allocation, ...]:
    """Return what containers hold of parts of the GPU."""
    parts: dict[tuple[str, Holder], list[str]] = {}
    for device in sorted(snapshot.held_devices.get(uuid, frozenset()) - {uuid}):
        holding = snapshot.holdings[device]
        if holding.holder is not None:
            parts.setdefault((holding.resource, holding.holder), []).append(device)
    return tuple(
        Allocation(
            resource,
            len(devices),
            holder.namespace,
            holder.pod,
            holder.container,
            () if resource == GPU_MEMORY_RESOURCE else tuple(devices),
        )
        for (resource, holder), devices in parts.items()
    )


def topology_resource(node_name: str, node_uid: str) -> dict[str, Any]:
    """Return the object that the node owns, so that it goes when the node goes."""
    return {
        "apiVersion": API_VERSION,
        "kind": GPU_TOPOLOGY_KIND,
        "metadata": {
            "name": node_name,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid}],
        },
    }


def status_resource(node_name: str, status: GPUTopologyStatus) -> dict[str, Any]:
    """Return `status` in Kubernetes' JSON shape; what is unknown is left out: the schema allows no null."""
    return {
        "apiVersion": API_VERSION,
        "kind": GPU_TOPOLOGY_KIND,
        "metadata": {"name": node_name},
        "status": _without_nulls(msgspec.to_builtins(status)),
    }


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(item) for item in value]
    return value
