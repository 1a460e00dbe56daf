"""Where would the members of a gang go, if all were placed at once? Pure.

Members are equal, and are placed one after the other by the filter, the ranking and the choice of devices by
which single pods are placed, each seeing what those before it took.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mcp2026.api.gpu_assignment import GpuAssignment
from mcp2026.api.gpu_devices import DeviceKind
from mcp2026.scheduler_extender.choosing import assignment_for, choose_parts
from mcp2026.scheduler_extender.cluster_events import ObservedPod
from mcp2026.scheduler_extender.filtering import filter_nodes
from mcp2026.scheduler_extender.parts_placement import Parts
from mcp2026.scheduler_extender.preferences import Preferences
from mcp2026.scheduler_extender.prioritizing import rank_nodes
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot, NodeGpus


@dataclass(frozen=True, slots=True)
class Place:
    """Exact devices on a node for one member."""

    node: str
    assignment: GpuAssignment


def plan_gang(
    snapshot: ClusterSnapshot,
    node_names: tuple[str, ...],
    pod: ObservedPod,
    count: int,
    memo: ScoreMemo,
    preferences: Preferences,
) -> tuple[Place, ...]:
    """Return the places of up to `count` pods like `pod` on the nodes named: fewer where there is no room."""
    nodes, states, words = dict(snapshot.nodes), dict(snapshot.states), dict(snapshot.words)
    left = replace(snapshot, nodes=nodes, states=states, words=words)
    places: list[Place] = []
    names = node_names
    while len(places) < count:
        names = filter_nodes(left, names, pod.demands).feasible
        if not names:
            break
        (best,) = rank_nodes(left, names, pod.demands, memo, preferences).best(1)
        node = nodes[best.nodes[0]]
        if node.gpus is None:
            break
        assignment = assignment_for(node.gpus, pod.demands, memo, preferences)
        places.append(Place(node.name, assignment))
        taken = replace(node, gpus=without(node.gpus, pod.demands, assignment, preferences))
        nodes[node.name], states[node.name], words[node.name] = taken, taken.state, taken.words
    return tuple(places)


def most_members(snapshot: ClusterSnapshot, node_names: tuple[str, ...], demands: tuple[Demand, ...]) -> int:
    """Return how many pods with `demands` the nodes named could hold at most, if every pod went."""
    return sum(
        min(_most(gpus, demand) for demand in demands)
        for name in node_names
        if (node := snapshot.nodes.get(name)) is not None and (gpus := node.gpus) is not None
    )


def _most(gpus: NodeGpus, demand: Demand) -> int:
    if demand.kind is DeviceKind.GPU:
        return gpus.healthy // demand.units
    healthy = (part for part in gpus.parts.get(demand.resource, ()) if part.position not in gpus.unhealthy)
    return sum(part.total for part in healthy) // demand.units


def without(
    gpus: NodeGpus, demands: tuple[Demand, ...], assignment: GpuAssignment, preferences: Preferences
) -> NodeGpus:
    """Return `gpus` as they are once a pod with `demands` has what `assignment`, chosen for it, names."""
    held = set(gpus.held)
    parts = dict(gpus.parts)
    tenants = gpus.tenants
    for demand in demands:
        devices = {device for given in assignment.values() for device in given.get(demand.resource, ())}
        if demand.kind is DeviceKind.GPU:
            held |= {position for position, uuid in enumerate(gpus.uuids) if uuid in devices}
        else:
            units = choose_parts(gpus, demand, preferences).units
            tenants = tuple(
                preferences.with_this_pod(each) if position in units else each
                for position, each in enumerate(tenants)
            )
            parts[demand.resource] = tuple(
                _less(part, units, devices) for part in gpus.parts[demand.resource]
            )
    return replace(gpus, held=frozenset(held), parts=parts, tenants=tenants)


def _less(part: Parts, units: Mapping[int, int], devices: set[str]) -> Parts:
    return replace(
        part,
        free=part.free - units.get(part.position, 0),
        devices=tuple(device for device in part.devices if device not in devices),
    )
