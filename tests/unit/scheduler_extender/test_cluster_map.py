"""The map of GPUs: each is in one state, with the pods that have it."""

from mcp2026.api.gpu_assignment import format_gpu_assignment
from mcp2026.api.names import GPU_ASSIGNMENT_ANNOTATION, GPU_MEMORY_RESOURCE, GPU_RESOURCE
from mcp2026.scheduler_extender.cache import NO_TOPOLOGY
from mcp2026.scheduler_extender.cluster_map import GpuCell, NodeRow, cluster_map
from tests.fakes.clusters import filled_cache, pod, topology

EIGHT = "8xt4-pcie-2socket"


def test_every_state_is_told_apart() -> None:
    document = topology("b", EIGHT, {0: "default/holds"}, unhealthy=[2])
    gpus = document["status"]["gpus"]
    gpus[3]["sharing"] = {"mode": "MPS", "unit": "Memory", "state": "Active"}
    gpus[3]["allocations"] = [
        {
            "resource": GPU_MEMORY_RESOURCE,
            "units": 5,
            "namespace": "default",
            "pod": "holds",
            "container": "main",
        }
    ]
    gpus[4]["sharing"] = {"mode": "MIG", "state": "Changing"}
    starting = pod("starts", 1, "b")
    value = format_gpu_assignment({"main": {GPU_RESOURCE: (gpus[1]["uuid"],)}})
    starting["metadata"]["annotations"] = {GPU_ASSIGNMENT_ANNOTATION: value}
    cache = filled_cache([document], [pod("holds", 1, "b"), starting], bare_nodes=["a"])
    bare, node = cluster_map(cache.snapshot())
    assert bare == NodeRow("a", problem=NO_TOPOLOGY)
    assert node.gpus == (
        GpuCell(0, "held", ("default/holds",)),
        GpuCell(1, "reserved", ("default/starts",)),
        GpuCell(2, "unhealthy"),
        GpuCell(3, "shared", ("default/holds",), GPU_MEMORY_RESOURCE, 10, 15),
        GpuCell(4, "unavailable"),
        *(GpuCell(index, "free") for index in (5, 6, 7)),
    )


def test_a_holder_that_nobody_watches_is_a_holder() -> None:
    (node,) = cluster_map(filled_cache([topology("n", EIGHT, {0: "x/gone"})]).snapshot())
    assert node.gpus[0] == GpuCell(0, "held")
