"""The exact devices that a pod is to get: as many as asked, free, none twice, and belonging together."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.api.names import GPU_MEMORY_RESOURCE, GPU_RESOURCE, GPU_SHARED_RESOURCE
from mcp2026.scheduler_extender.choosing import assignment_for, best_key
from mcp2026.scheduler_extender.kube_objects import PodSpec
from mcp2026.scheduler_extender.request import Demand, demands_of
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import NodeGpus
from tests.fakes.clusters import filled_cache, pod, topology

FOUR = "4xa100-pcie-nvlink-pairs"
"""NVLink bridges join 0 with 1 and 2 with 3."""
MIG_3G, MIG_1G = "mcp2026.io/mig-3g.40gb", "mcp2026.io/mig-1g.10gb"


def node(document: dict[str, Any], *pods: dict[str, Any]) -> NodeGpus:
    gpus = filled_cache([document], pods).snapshot().nodes["n"].gpus
    assert gpus is not None
    return gpus


def asking(**containers: dict[str, int]) -> tuple[Demand, ...]:
    spec = {
        "containers": [{"name": name, "resources": {"limits": asks}} for name, asks in containers.items()]
    }
    return demands_of(msgspec.convert(spec, PodSpec))


def indices(document: dict[str, Any], uuids: tuple[str, ...]) -> tuple[int, ...]:
    index_of = {gpu["uuid"]: gpu["index"] for gpu in document["status"]["gpus"]}
    return tuple(index_of[uuid] for uuid in uuids)


def shared(mode: str, unit: str = "Replica", **more: Any) -> dict[str, Any]:
    return {"mode": mode, "unit": unit, "state": "Active", **more}


def shares_on(*gpus: int) -> dict[str, Any]:
    document = topology("n", FOUR)
    for gpu in gpus:
        document["status"]["gpus"][gpu]["sharing"] = shared("TimeSlice", replicas=3)
    return document


def test_the_linked_pair_is_taken_whole() -> None:
    document = topology("n", FOUR, {0: "x/a"})
    assignment = assignment_for(node(document), asking(main={GPU_RESOURCE: 2}), ScoreMemo())
    assert indices(document, assignment["main"][GPU_RESOURCE]) == (2, 3)


def test_each_container_gets_a_linked_pair_of_its_own() -> None:
    document = topology("n", FOUR)
    assignment = assignment_for(
        node(document), asking(one={GPU_RESOURCE: 2}, two={GPU_RESOURCE: 2}), ScoreMemo()
    )
    assert indices(document, assignment["one"][GPU_RESOURCE]) == (0, 1)
    assert indices(document, assignment["two"][GPU_RESOURCE]) == (2, 3)


def test_what_a_starting_pod_will_take_is_left_to_it() -> None:
    document = topology("n", FOUR)
    assignment = assignment_for(
        node(document, pod("starting", 2, "n")), asking(main={GPU_RESOURCE: 2}), ScoreMemo()
    )
    assert indices(document, assignment["main"][GPU_RESOURCE]) == (2, 3)


def test_two_shares_are_of_two_gpus() -> None:
    gpus = node(shares_on(1, 2))
    names = assignment_for(gpus, asking(main={GPU_SHARED_RESOURCE: 2}), ScoreMemo())["main"][
        GPU_SHARED_RESOURCE
    ]
    assert len({name.partition("::")[0] for name in names}) == 2


def test_one_share_is_of_the_gpu_that_is_in_use() -> None:
    document = shares_on(1, 2)
    gpu = document["status"]["gpus"][2]
    gpu["allocations"] = [
        {
            "resource": GPU_SHARED_RESOURCE,
            "units": 1,
            "namespace": "default",
            "pod": "a",
            "container": "main",
            "devices": [f"{gpu['uuid']}::0"],
        }
    ]
    names = assignment_for(node(document), asking(main={GPU_SHARED_RESOURCE: 1}), ScoreMemo())
    assert names == {"main": {GPU_SHARED_RESOURCE: (f"{gpu['uuid']}::1",)}}


@pytest.mark.parametrize("replicas", [2, 3])
def test_shares_through_mps_are_of_one_gpu(replicas: int) -> None:
    document = topology("n", FOUR)
    for gpu in (1, 2):
        document["status"]["gpus"][gpu]["sharing"] = shared("MPS", replicas=replicas)
    gpus, wanted = node(document), asking(main={GPU_SHARED_RESOURCE: 3})
    assert all(gpus.fits(demand) for demand in wanted) is (replicas == 3)
    if replicas == 3:
        names = assignment_for(gpus, wanted, ScoreMemo())["main"][GPU_SHARED_RESOURCE]
        assert len({name.partition("::")[0] for name in names}) == 1


def test_memory_goes_where_least_is_left() -> None:
    document = topology("n", FOUR)
    for gpu, taken in ((0, 0), (1, 50), (2, 70)):
        status = document["status"]["gpus"][gpu]
        status["sharing"] = shared("MPS", "Memory")
        if taken:
            holder = {"namespace": "x", "pod": str(gpu), "container": "c"}
            status["allocations"] = [{"resource": GPU_MEMORY_RESOURCE, "units": taken, **holder}]
    gpus = node(document)
    chosen = assignment_for(gpus, asking(main={GPU_MEMORY_RESOURCE: 20}), ScoreMemo())
    devices = chosen["main"][GPU_MEMORY_RESOURCE]
    assert len(devices) == 20
    assert indices(document, (devices[0].partition("::")[0],)) == (1,)
    closer = best_key(gpus, asking(main={GPU_MEMORY_RESOURCE: 10}), ScoreMemo())
    assert closer > best_key(gpus, asking(main={GPU_MEMORY_RESOURCE: 20}), ScoreMemo())


@pytest.mark.parametrize(
    "asked", [{GPU_RESOURCE: 5}, {GPU_SHARED_RESOURCE: 1}, {GPU_MEMORY_RESOURCE: 1}], ids=str
)
def test_what_does_not_fit_is_not_assigned(asked: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        assignment_for(node(topology("n", FOUR)), asking(main=asked), ScoreMemo())


@st.composite
def nodes_and_pods(draw: st.DrawFn) -> tuple[NodeGpus, tuple[Demand, ...]]:
    document = topology("n", FOUR, dict.fromkeys(draw(st.sets(st.integers(0, 3), max_size=2)), "x/a"))
    for place, gpu in enumerate(document["status"]["gpus"]):
        sharing = draw(
            st.sampled_from(
                [
                    None,
                    shared("TimeSlice", replicas=3),
                    shared("MPS", replicas=2),
                    shared("MPS", "Memory"),
                    shared("MIG"),
                ]
            )
        )
        if sharing is None:
            continue
        gpu.pop("heldBy", None)
        gpu["sharing"] = sharing
        if sharing["mode"] == "MIG":
            profiles = ["3g.40gb", "1g.10gb", "1g.10gb"]
            gpu["migDevices"] = [
                {"uuid": f"MIG-{place}-{number}", "profile": profile, "start": number, "size": 1}
                for number, profile in enumerate(profiles)
            ]
    resource = st.sampled_from([GPU_RESOURCE, GPU_SHARED_RESOURCE, GPU_MEMORY_RESOURCE, MIG_3G, MIG_1G])
    asks = st.dictionaries(resource, st.integers(1, 3), max_size=2)
    containers = draw(st.dictionaries(st.sampled_from(["a", "b", "c"]), asks, min_size=1))
    return node(document), asking(**containers)


@given(nodes_and_pods())
def test_an_assignment_gives_what_was_asked_of_what_is_free_and_nothing_twice(
    case: tuple[NodeGpus, tuple[Demand, ...]],
) -> None:
    gpus, demands = case
    if not all(gpus.fits(demand) for demand in demands):
        return
    assignment = assignment_for(gpus, demands, ScoreMemo())
    for demand in demands:
        given_devices = []
        for container, units in demand.containers:
            devices = assignment[container][demand.resource]
            assert len(devices) == units
            if demand.resource == GPU_MEMORY_RESOURCE:
                assert len({name.partition("::")[0] for name in devices}) == 1
                continue
            given_devices.extend(devices)
        free = {name for part in gpus.parts.get(demand.resource, ()) for name in part.devices}
        if demand.resource == GPU_RESOURCE:
            free = {gpus.uuids[position] for position in gpus.free}
        assert len(given_devices) == len(set(given_devices))
        assert set(given_devices) <= free
