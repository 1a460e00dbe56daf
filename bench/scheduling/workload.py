"""The cluster and the pods that are scheduled: made from machines of tests/topologies, the same each time."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from mcp2026.api.names import API_VERSION, GPU_RESOURCE, GPU_TOPOLOGY_KIND
from mcp2026.topology.idle_machine import idle_status
from mcp2026.topology.machine import machine_from_file
from tools.cluster.kwok import played_node

TOPOLOGIES = Path(__file__).parents[2] / "tests" / "topologies"
MACHINES = ("hgx-h100-8gpu", "dgx-a100-8xa100", "dgx-1v-8xv100", "8xa100-pcie-nv12-pairs-all-sys")
"""Each with 8 GPUs, linked in four ways."""
GPUS_PER_NODE = 8

MIX = {1: 40, 2: 30, 4: 20, 8: 10}
"""How many of 100 pods ask for so many GPUs."""

LABEL = "mcp2026.io/bench"


def nodes(count: int) -> Iterator[dict[str, Any]]:
    """Yield the nodes, for kwok to play."""
    for number in range(count):
        yield played_node(f"gpu-{number:05}", {GPU_RESOURCE: str(GPUS_PER_NODE)})


def topologies(count: int) -> Iterator[dict[str, Any]]:
    """Yield the GPUTopology of each node, with its status."""
    statuses = [
        msgspec.to_builtins(idle_status(machine_from_file(TOPOLOGIES / f"{name}.yaml"))) for name in MACHINES
    ]
    for number in range(count):
        yield {
            "apiVersion": API_VERSION,
            "kind": GPU_TOPOLOGY_KIND,
            "metadata": {"name": f"gpu-{number:05}"},
            "status": without_nulls(statuses[number % len(statuses)]),
        }


def without_nulls(value: Any) -> Any:
    """Return `value` without members that are null, which the schema does not allow."""
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(member) for member in value]
    return value


def pods(count: int, scheduler: str, prefix: str, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yield pods with requests drawn from `MIX`, for the scheduler of this name."""
    draw = random.Random(seed)
    sizes, weights = list(MIX), list(MIX.values())
    for number in range(count):
        (gpus,) = draw.choices(sizes, weights)
        amounts = {"cpu": "100m", GPU_RESOURCE: str(gpus)}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{prefix}-{number:05}", "labels": {LABEL: prefix}},
            "spec": {
                "schedulerName": scheduler,
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}],
                "containers": [
                    {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
                ],
            },
        }
