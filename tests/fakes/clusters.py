"""Clusters as data: Kubernetes' JSON of nodes, pods and GPU topologies, made from tests/topologies."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mcp2026.api.gpu_devices import DeviceKind
from mcp2026.api.names import API_VERSION, GPU_RESOURCE, GPU_TOPOLOGY_KIND
from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.cluster_events import Kind, Listed, observe
from mcp2026.scheduler_extender.request import Demand
from mcp2026.topology.machine import Machine, ancestor_name, machine_from_file

TOPOLOGIES = Path(__file__).parents[1] / "topologies"


@cache
def _machine(name: str) -> Machine:
    return machine_from_file(TOPOLOGIES / f"{name}.yaml")


def topology(
    node: str, machine: str, held: Mapping[int, str] | None = None, unhealthy: Sequence[int] = ()
) -> dict[str, Any]:
    """A GPUTopology of `node`, a machine of tests/topologies; `held` maps a GPU to its ``namespace/pod``."""
    held = held or {}
    described = _machine(machine)
    gpus = []
    for gpu in described.gpus:
        status: dict[str, Any] = {
            "index": gpu.index,
            "uuid": gpu.uuid,
            "product": gpu.product,
            "memoryMiB": gpu.memory_mib,
            "pciBusId": gpu.pci_bus_id,
            "numaNode": gpu.numa_node,
            "health": "Unhealthy" if gpu.index in unhealthy else "Healthy",
            "nvlinks": [
                {"link": link.link, "version": link.version}
                | ({} if link.peer is None else {"peer": link.peer})
                for link in gpu.nvlinks
            ],
        }
        if gpu.index in held:
            namespace, pod = held[gpu.index].split("/")
            status["heldBy"] = {"namespace": namespace, "pod": pod, "container": "main"}
        gpus.append(status)
    return {
        "apiVersion": API_VERSION,
        "kind": GPU_TOPOLOGY_KIND,
        "metadata": {"name": node},
        "status": {
            "driver": described.driver,
            "cuda": described.cuda,
            "gpus": gpus,
            "pcieAncestors": [[ancestor_name(level) for level in row] for row in described.pcie_ancestors],
        },
    }


def pod(name: str, gpus: int, node: str = "", phase: str = "Pending") -> dict[str, Any]:
    """A pod of the namespace `default` whose one container asks for `gpus`."""
    amounts = {GPU_RESOURCE: str(gpus)} if gpus else {}
    spec: dict[str, Any] = {
        "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]
    }
    if node:
        spec["nodeName"] = node
    return {
        "metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}", "creationTimestamp": None},
        "spec": spec,
        "status": {"phase": phase},
    }


def whole(gpus: int) -> tuple[Demand, ...]:
    """What a pod asks for whose one container, `main`, asks for `gpus` whole GPUs."""
    return (Demand(GPU_RESOURCE, DeviceKind.GPU, gpus, (("main", gpus),)),) if gpus else ()


def node(name: str) -> dict[str, Any]:
    """A node."""
    return {"metadata": {"name": name}, "status": {"capacity": {"cpu": "8"}}}


def listed(kind: Kind, *documents: dict[str, Any]) -> Listed:
    """The event of a whole list."""
    return Listed(kind, tuple(observe(kind, json.dumps(document).encode()) for document in documents))


def filled_cache(
    topologies: Sequence[dict[str, Any]],
    pods: Sequence[dict[str, Any]] = (),
    bare_nodes: Sequence[str] = (),
    budgets: Sequence[dict[str, Any]] = (),
) -> ClusterCache:
    """A synced cache: a node for each topology, and `bare_nodes` without one."""
    names = [*(document["metadata"]["name"] for document in topologies), *bare_nodes]
    filled = ClusterCache()
    filled.apply(listed(Kind.NODES, *map(node, names)))
    filled.apply(listed(Kind.PODS, *pods))
    filled.apply(listed(Kind.GPU_TOPOLOGIES, *topologies))
    filled.apply(listed(Kind.BUDGETS, *budgets))
    return filled
