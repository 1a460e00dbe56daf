"""Whether a pod's parts fit a node, against trying all ways to place them."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from mcp2026.api.gpu_devices import DeviceKind
from mcp2026.api.names import GPU_MEMORY_RESOURCE, GPU_SHARED_RESOURCE, MIG_RESOURCE_PREFIX
from mcp2026.scheduler_extender.filtering import filter_nodes
from mcp2026.scheduler_extender.parts_placement import Parts, has_room, place_parts
from mcp2026.scheduler_extender.request import Demand
from tests.fakes.clusters import filled_cache, topology

RESOURCES = {
    DeviceKind.MEMORY: GPU_MEMORY_RESOURCE,
    DeviceKind.SHARE: GPU_SHARED_RESOURCE,
    DeviceKind.MIG: f"{MIG_RESOURCE_PREFIX}1g.10gb",
}


def asking(kind: DeviceKind, *units: int) -> Demand:
    return Demand(RESOURCES[kind], kind, sum(units), tuple((f"c{n}", each) for n, each in enumerate(units)))


def fits_in_some_way(parts: list[Parts], containers: list[int]) -> bool:
    """Try each choice of, for each container, one GPU whose parts go together, or all others."""
    together = [part.position for part in parts if part.together]
    apart = sum(part.free for part in parts if not part.together)
    for choice in product([*together, None], repeat=len(containers)):
        left = {part.position: part.free for part in parts if part.together}
        spread = apart
        for where, units in zip(choice, containers, strict=True):
            if where is None:
                spread -= units
            else:
                left[where] -= units
        if spread >= 0 and min(left.values(), default=0) >= 0:
            return True
    return False


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=4),
    st.lists(st.integers(1, 6), min_size=1, max_size=2),
)
def test_shares_of_two_containers_fit_where_there_is_a_way(
    gpus: list[tuple[int, bool]], containers: list[int]
) -> None:
    parts = [Parts(place, 6, free, together=joined) for place, (free, joined) in enumerate(gpus)]
    placed = place_parts(asking(DeviceKind.SHARE, *containers), parts)
    assert (placed is not None) is fits_in_some_way(parts, containers)


@settings(max_examples=300)
@given(
    st.sampled_from([DeviceKind.MEMORY, DeviceKind.SHARE]),
    st.lists(st.integers(0, 8), min_size=1, max_size=4),
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
)
def test_what_must_come_from_one_gpu_fits_where_there_is_a_way(
    kind: DeviceKind, free: list[int], containers: list[int]
) -> None:
    parts = [Parts(place, 8, count, together=True) for place, count in enumerate(free)]
    placed = place_parts(asking(kind, *containers), parts)
    assert (placed is not None) is fits_in_some_way(parts, containers)


@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=4), st.lists(st.integers(1, 6), min_size=1, max_size=4)
)
def test_mig_devices_fit_where_there_are_as_many(free: list[int], containers: list[int]) -> None:
    parts = [Parts(place, 7, count) for place, count in enumerate(free)]
    assert has_room(asking(DeviceKind.MIG, *containers), parts) is (sum(containers) <= sum(free))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=4, max_size=4), min_size=1, max_size=4),
    st.integers(1, 10),
)
def test_nodes_that_are_said_to_have_shares_have_them(held: list[list[int]], asked: int) -> None:
    documents = []
    for place, taken in enumerate(held):
        document = topology(f"n{place}", "4xa100-pcie-nvlink-pairs")
        for gpu, count in zip(document["status"]["gpus"], taken, strict=True):
            gpu["sharing"] = {"mode": "TimeSlice", "replicas": 4, "state": "Active"}
            gpu["allocations"] = [
                {
                    "resource": GPU_SHARED_RESOURCE,
                    "devices": [f"{gpu['uuid']}::{number}"],
                    "units": 1,
                    "namespace": "x",
                    "pod": f"p{number}",
                    "container": "main",
                }
                for number in range(count)
            ]
        documents.append(document)
    snapshot = filled_cache(documents).snapshot()
    names = tuple(snapshot.nodes)
    demands = (asking(DeviceKind.SHARE, asked),)
    expected = {f"n{place}" for place, taken in enumerate(held) if 16 - sum(taken) >= asked}
    assert set(filter_nodes(snapshot, names, demands).feasible) == expected
