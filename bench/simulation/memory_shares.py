"""Models that share GPUs by memory through MPS, placed and limited by the product's own code.

The extender's what-if places them, first come first served, on GPUs that are sold by GiB; the device plugin's
rule gives each its part of the threads. A process that may use t percent of the threads is taken to compute
like a slice with t percent of the compute slices, and not to disturb others: MPS shares memory bandwidth and
caches, so this is kinder to it than to MIG.
"""

from collections.abc import Sequence
from typing import Any

from bench.simulation.serving_queue import GPU_COMPUTE_SLICES, ServedModel
from bench.simulation.slicing import GPU_MEMORY_MIB, Arrangement, Server
from mcp2026.api.gpu_devices import DeviceKind
from mcp2026.api.gpu_sharing import Sharing
from mcp2026.api.names import API_VERSION, GPU_MEMORY_RESOURCE, GPU_TOPOLOGY_KIND
from mcp2026.device_plugin.sharing.mps_limits import limits_of_units
from mcp2026.scheduler_extender.cluster_events import ObservedPod
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.what_if import ClusterDocuments, cache_of, place_pods

_SOLD_BY_MEMORY = Sharing(mode="MPS", unit="Memory")
_MIB_PER_GIB = 1_024


def shared_by_memory(models: Sequence[ServedModel], gpus: int) -> Arrangement:
    """Let each model ask for as many GiB as it needs, in the order in which they come."""
    nodes = [f"gpu-{number}" for number in range(gpus)]
    cache = cache_of(
        ClusterDocuments(
            nodes=tuple({"metadata": {"name": name}} for name in nodes),
            pods=(),
            gpu_topologies=tuple(map(_one_gpu, nodes)),
        )
    )
    asked = [-(-model.memory_mib // _MIB_PER_GIB) for model in models]
    decisions = place_pods(cache, [_pod(model, gib) for model, gib in zip(models, asked, strict=True)], 0.0)
    servers = []
    for model, gib, decision in zip(models, asked, decisions, strict=True):
        if decision.node:
            percentage = limits_of_units(_SOLD_BY_MEMORY, GPU_MEMORY_MIB, gib).thread_percentage
            slices = GPU_COMPUTE_SLICES * percentage / 100
            servers.append(Server(nodes.index(decision.node), slices, (model,), f"{percentage} % of threads"))
    return Arrangement(gpus, tuple(servers))


def _pod(model: ServedModel, gib: int) -> ObservedPod:
    demand = Demand(GPU_MEMORY_RESOURCE, DeviceKind.MEMORY, gib, (("runtime", gib),))
    return ObservedPod("default", model.name, model.name, "", (demand,))


def _one_gpu(node: str) -> dict[str, Any]:
    gpu = {
        "index": 0,
        "uuid": f"GPU-{node}",
        "product": "NVIDIA H100 80GB HBM3",
        "memoryMiB": GPU_MEMORY_MIB,
        "pciBusId": "0000:00:00.0",
        "sharing": {"mode": _SOLD_BY_MEMORY.mode, "unit": _SOLD_BY_MEMORY.unit},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": GPU_TOPOLOGY_KIND,
        "metadata": {"name": node},
        "status": {"gpus": [gpu], "pcieAncestors": [["SELF"]]},
    }
