"""The node's `GPUTopology` as the plugin sees it: GPUs, links, peers, health and who holds what. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from mcp2026.api.gpu_topology import GpuStatus, GPUTopologyStatus, Holder, NvLink, NvLinkPeer
from mcp2026.api.names import API_VERSION, GPU_TOPOLOGY_KIND
from mcp2026.topology.affinity import affinity_graph
from mcp2026.topology.machine import Machine, ancestor_name


def topology_status(
    machine: Machine, unhealthy: Mapping[str, str], holders: Mapping[str, Holder]
) -> GPUTopologyStatus:
    """Return the status of `machine`; `unhealthy` (reasons) and `holders` are by UUID."""
    graph = affinity_graph(machine)
    gpus = tuple(
        GpuStatus(
            index=gpu.index,
            uuid=gpu.uuid,
            product=gpu.product,
            memory_mi_b=gpu.memory_mib,
            pci_bus_id=gpu.pci_bus_id,
            numa_node=gpu.numa_node,
            health="Unhealthy" if gpu.uuid in unhealthy else "Healthy",
            mig_capable=gpu.mig_capable,
            inactive_links=gpu.inactive_links,
            nvlinks=tuple(NvLink(link.link, link.peer, link.version) for link in gpu.nvlinks),
            peers=tuple(
                NvLinkPeer(machine.gpus[peer.index].index, peer.bandwidth_gb_per_s, peer.latency_ns)
                for peer in graph.nvlink_peers(place)
            ),
            held_by=holders.get(gpu.uuid),
        )
        for place, gpu in enumerate(machine.gpus)
    )
    ancestors = tuple(tuple(ancestor_name(ancestor) for ancestor in row) for row in machine.pcie_ancestors)
    return GPUTopologyStatus(driver=machine.driver, cuda=machine.cuda, gpus=gpus, pcie_ancestors=ancestors)


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
