"""What the replay of a scheduling run's events finds: pods on GPUs that others have, and pods that moved."""

from dataclasses import replace

import pytest

from bench.scheduling import workload
from bench.scheduling.fleet import Change, Offer, Replay
from mcp2026.api.names import GPU_MEMORY_RESOURCE, GPU_RESOURCE, GPU_SHARED_RESOURCE

OFFERS = {
    "whole": Offer({GPU_RESOURCE: frozenset({"GPU-a", "GPU-b"})}, {}),
    "shared": Offer({GPU_SHARED_RESOURCE: frozenset({"GPU-c::0", "GPU-c::1"})}, {}),
    "memory": Offer({}, {"GPU-d": 4}),
}


def bound(name: str, node: str, resource: str, *devices: str, asked: int | None = None) -> Change:
    amount = len(devices) if asked is None else asked
    return Change(0.0, name, f"uid-{name}", node, {resource: amount}, {"main": {resource: devices}})


def gone(change: Change) -> Change:
    return replace(change, gone=True)


ONE = bound("one", "whole", GPU_RESOURCE, "GPU-a")
OTHER = bound("other", "whole", GPU_RESOURCE, "GPU-a")
GIB = bound("gib", "memory", GPU_MEMORY_RESOURCE, "GPU-d::m0", "GPU-d::m1", "GPU-d::m2")


@pytest.mark.parametrize(
    ("changes", "doubles", "wrong", "moved"),
    [
        pytest.param([ONE, ONE, gone(ONE)], 0, 0, 0, id="a pod is told of often and bound once"),
        pytest.param([ONE, OTHER], 1, 0, 0, id="a GPU is given to a second pod while the first has it"),
        pytest.param([ONE, gone(ONE), OTHER], 0, 0, 0, id="a GPU is free once its pod is gone"),
        pytest.param([ONE, OTHER, gone(OTHER), gone(ONE)], 1, 0, 0, id="both go later: it stays counted"),
        pytest.param([ONE, replace(ONE, node="shared")], 0, 0, 1, id="a pod is bound a second time"),
        pytest.param([bound("x", "whole", GPU_RESOURCE, "GPU-z")], 0, 1, 0, id="a GPU of another node"),
        pytest.param([bound("x", "whole", GPU_RESOURCE, "GPU-a", asked=2)], 0, 1, 0, id="fewer than asked"),
        pytest.param([bound("x", "whole", GPU_RESOURCE, asked=1)], 0, 1, 0, id="nothing reserved"),
        pytest.param(
            [
                bound("x", "shared", GPU_SHARED_RESOURCE, "GPU-c::0"),
                bound("y", "shared", GPU_SHARED_RESOURCE, "GPU-c::1"),
                bound("z", "shared", GPU_SHARED_RESOURCE, "GPU-c::1"),
            ],
            1,
            0,
            0,
            id="two shares of a GPU are two devices, and a third is none",
        ),
        pytest.param(
            [GIB, replace(GIB, name="gib2", uid="u2")], 2, 0, 0, id="GiB are counted, not told apart"
        ),
        pytest.param([GIB, gone(GIB), replace(GIB, name="gib2", uid="u2")], 0, 0, 0, id="GiB are free again"),
    ],
)
def test_a_replay_counts(changes: list[Change], doubles: int, wrong: int, moved: int) -> None:
    replay = Replay(OFFERS).play(changes)
    assert (replay.doubles, replay.wrong, replay.moved) == (doubles, wrong, moved)
    assert bool(replay.problems) == bool(doubles or wrong or moved)


def test_every_device_of_the_played_fleet_is_there_once() -> None:
    offers = workload.offers(40)
    names = [name for offer in offers.values() for devices in offer.devices.values() for name in devices]
    assert len(names) == len(set(names))
    assert {resource for offer in offers.values() for resource in offer.amounts} == set(workload.RESOURCES)


def test_portions_of_the_pods_ask_for_the_same_as_all_at_once() -> None:
    whole = list(workload.pods(50, "s", "p"))
    portions = [*workload.pods(20, "s", "p"), *workload.pods(30, "s", "p", first=20)]
    assert portions == whole
