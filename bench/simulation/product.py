"""Our policy is the product's code: the cache, the filter, the ranking and the choice of devices."""

from collections.abc import Sequence
from typing import Any

import msgspec

from bench.scheduling.workload import without_nulls
from bench.simulation.fleet import Node
from bench.simulation.jobs import Job
from bench.simulation.policies import Placement
from mcp2026.api.gpu_devices import DeviceKind
from mcp2026.api.names import API_VERSION, GPU_RESOURCE, GPU_TOPOLOGY_KIND
from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.choosing import assignment_for
from mcp2026.scheduler_extender.cluster_events import Gone, Kind, ObservedPod, Seen
from mcp2026.scheduler_extender.filtering import filter_nodes
from mcp2026.scheduler_extender.prioritizing import rank_nodes
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.what_if import ClusterDocuments, cache_of
from mcp2026.topology.bitmasks import mask_of
from mcp2026.topology.idle_machine import idle_status

_CONTAINER = "main"
_NAMESPACE = "default"
_BIND_TIMEOUT_S = 60.0


class ProductPolicy:
    """Goes through what happens to a pod in the extender: filter, prioritize, bind, seen bound, gone."""

    name = "ours"

    def __init__(self, fleet: tuple[Node, ...]) -> None:
        self._places = {node.name: place for place, node in enumerate(fleet)}
        self._cache = _cache_of(fleet)
        self._memo = ScoreMemo()

    def place(self, job: Job, free: Sequence[int]) -> Placement | None:  # noqa: ARG002 (the cache knows)
        """Place `job` as what-if does, and show the cache that it was bound."""
        demand = Demand(GPU_RESOURCE, DeviceKind.GPU, job.gpus, ((_CONTAINER, job.gpus),))
        pod = ObservedPod(_NAMESPACE, job.name, job.name, "", (demand,), priority=job.priority)
        snapshot = self._cache.snapshot()
        feasible = filter_nodes(snapshot, tuple(snapshot.nodes), pod.demands).feasible
        if not feasible:
            return None
        (best,) = rank_nodes(snapshot, feasible, pod.demands, self._memo).best(1)
        node = best.nodes[0]
        gpus = snapshot.nodes[node].gpus
        assert gpus is not None
        assignment = assignment_for(gpus, pod.demands, self._memo)
        bound = pod.bound_to(node, assignment)
        self._cache.assume(bound, job.arrival_s + _BIND_TIMEOUT_S)
        self._cache.apply(Seen(bound))
        devices = assignment[_CONTAINER][GPU_RESOURCE]
        return Placement(self._places[node], mask_of(gpus.uuids.index(device) for device in devices))

    def ended(self, job: Job) -> None:
        """Show the cache that the pod is gone."""
        self._cache.apply(Gone(Kind.PODS, f"{_NAMESPACE}/{job.name}"))


def _cache_of(fleet: tuple[Node, ...]) -> ClusterCache:
    return cache_of(
        ClusterDocuments(
            nodes=tuple({"metadata": {"name": node.name}} for node in fleet),
            pods=(),
            gpu_topologies=tuple(map(_gpu_topology, fleet)),
        )
    )


def _gpu_topology(node: Node) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": GPU_TOPOLOGY_KIND,
        "metadata": {"name": node.name},
        "status": without_nulls(msgspec.to_builtins(idle_status(node.machine))),
    }
