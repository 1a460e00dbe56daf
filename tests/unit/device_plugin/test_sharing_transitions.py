"""How a GPU gets from one way of sharing to another, without a pod noticing, on a node as data."""

from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp2026.api.gpu_sharing import EXCLUSIVE, Sharing, SharingMode
from mcp2026.device_plugin.devices import CurrentSharing
from mcp2026.device_plugin.driver import ComputeMode
from mcp2026.device_plugin.sharing.observation import (
    CreateInstance,
    DaemonState,
    DestroyInstance,
    StartMps,
    StopMps,
)
from mcp2026.device_plugin.sharing.transitions import LONGEST_PAUSE_S, SILENT_DAEMON_S, SharingTransitions
from tests.unit.device_plugin.sharing_world import GPU, MIG, MPS, TIME_SLICE, StepRefusedError, World

MODES = [
    EXCLUSIVE,
    TIME_SLICE,
    Sharing("TimeSlice", replicas=8),
    Sharing("TimeSlice", unit="Memory"),
    MPS,
    Sharing("MPS", replicas=2),
    Sharing("MPS", unit="Memory"),
    MIG,
    Sharing("MIG", mig_layout=("2g.20gb", "1g.10gb")),
]


def as_wanted(world: World) -> bool:
    if world.current.state != "Active" or world.current.sharing != world.wanted:
        return False
    mps = world.wanted.mode == "MPS"
    layout = sorted(instance.profile for instance in world.instances or ())
    return (
        (world.instances is not None) == (world.wanted.mode == "MIG")
        and layout == sorted(world.wanted.mig_layout)
        and (world.daemon is not None) == mps
        and (world.compute_mode is ComputeMode.EXCLUSIVE_PROCESS) == mps
    )


@pytest.mark.parametrize("before", MODES)
@pytest.mark.parametrize("after", MODES)
def test_a_free_gpu_goes_from_each_way_to_each_other_and_back(before: Sharing, after: Sharing) -> None:
    world = World(wanted=before)
    for wanted in (before, after, before):
        world.wanted = wanted
        world.settle(30)
        assert as_wanted(world), world.current
        assert world.offered


@pytest.mark.parametrize(
    ("before", "after"),
    [(before, after) for before in MODES for after in MODES if before != after and before.mode != "MIG"],
)
def test_a_held_gpu_stays_as_it_is_and_says_for_whom_it_waits(before: Sharing, after: Sharing) -> None:
    world = World(wanted=before)
    world.settle(30)
    done = len(world.done)
    device = world.admit()
    assert device is not None
    world.wanted = after
    world.settle(30)
    assert world.current.state == "Draining"
    assert world.current.message == "waits for 1 pod: ns/p0"
    assert world.current.sharing == before
    assert world.offered == {device}
    assert len(world.done) == done
    world.pods.clear()
    world.settle(30)
    assert as_wanted(world)


def test_several_pods_are_named_in_order() -> None:
    world = World(wanted=TIME_SLICE)
    world.settle(3)
    for _ in range(2):
        world.admit()
    world.wanted = EXCLUSIVE
    world.tick()
    assert world.current.message == "waits for 2 pods: ns/p0, ns/p1"


def test_a_device_given_away_just_now_is_waited_for_without_a_name() -> None:
    world = World(wanted=TIME_SLICE)
    world.settle(3)
    device = world.admit()
    assert device is not None
    seen = world.pods
    world.pods = {device: None}  # type: ignore[dict-item]  # as long as the kubelet has not told
    world.wanted = EXCLUSIVE
    world.tick()
    assert world.current.message == "waits for 1 device given away just now"
    world.pods = seen


def test_nothing_is_changed_before_the_kubelet_has_noticed() -> None:
    world = World(wanted=TIME_SLICE)
    world.settle(3)
    world.wanted = MPS
    for _ in range(5):
        world.tick(sync=False)
    assert world.current.message == "waits for the kubelet to take 4 devices off its list"
    assert not world.done
    late = world.admit()  # from the old list, in the last moment
    world.settle(3)
    assert world.current.message == "waits for 1 pod: ns/p0"
    assert late is not None
    del world.pods[late]
    world.settle(10)
    assert as_wanted(world)


def test_a_kubelet_that_does_not_tell_what_is_allocatable_gets_time() -> None:
    world = World(wanted=EXCLUSIVE, tells_allocatable=False)
    world.settle(3)
    world.wanted = MIG
    world.settle(8)
    assert world.current.message == "waits for the kubelet to settle"
    world.settle(20)
    assert as_wanted(world)


def test_without_the_kubelets_answer_whole_gpus_are_offered_and_nothing_is_changed() -> None:
    world = World(wanted=EXCLUSIVE, kubelet_answers=False)
    world.tick()
    assert world.offered == {GPU}
    world.wanted = TIME_SLICE
    world.settle(5)
    assert world.current.state == "Draining"
    assert "the socket is gone" in world.current.message


def test_a_share_that_turns_out_to_be_held_takes_the_whole_gpu_off_the_list() -> None:
    world = World(wanted=EXCLUSIVE, kubelet_answers=False)
    world.tick()
    world.admit(f"{GPU}::2")
    world.kubelet_answers = True
    world.tick()
    assert world.current.state == "Draining"
    assert world.offered == {f"{GPU}::2"}


def test_processes_of_no_pod_keep_the_gpu_as_it_is() -> None:
    world = World(wanted=EXCLUSIVE, foreign_pids=frozenset({12, 34}))
    world.settle(3)
    world.wanted = MPS
    world.settle(5)
    assert "2 processes" in world.current.message
    assert "12, 34" in world.current.message
    assert not world.done
    world.foreign_pids = frozenset()
    world.settle(10)
    assert as_wanted(world)


def test_a_change_that_is_wanted_back_is_cancelled() -> None:
    world = World(wanted=TIME_SLICE)
    world.settle(3)
    world.admit()
    world.wanted = MIG
    world.settle(3)
    world.wanted = TIME_SLICE
    world.tick()
    assert world.current.state == "Active"
    assert len(world.offered) == 4
    assert not world.done


def test_a_step_that_fails_is_told_and_tried_again_after_growing_pauses() -> None:
    world = World(wanted=MIG, refuses="SetMigMode")
    tries = []
    for _ in range(60):
        failures = world.transitions._memories[GPU].failures if world.transitions._memories else 0
        world.tick()
        if world.transitions._memories[GPU].failures > failures:
            tries.append(world.now)
    assert world.current.state == "Failed"
    assert world.current.message == "the driver refuses"
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 8
    world.refuses = ""
    world.settle(80)
    assert as_wanted(world)


def test_a_failed_change_that_is_no_longer_wanted_is_forgotten() -> None:
    world = World(wanted=MIG, refuses="SetMigMode")
    world.settle(20)
    world.wanted = EXCLUSIVE
    world.tick()
    assert as_wanted(world)


@pytest.mark.parametrize(
    ("world", "says"),
    [
        (World(wanted=MIG, profiles=()), "no MIG"),
        (World(wanted=Sharing("MPS", replicas=17), capability=(6, 1)), "at most 16"),
        (World(wanted=Sharing("MIG", mig_layout=("5g.60gb",))), "5g.60gb: not one of this GPU"),
        (World(wanted=Sharing("MIG", mig_layout=("7g.80gb", "1g.10gb"))), "allowed: at most 7"),
        (World(wanted=Sharing("MIG", mig_layout=("3g.40gb",) * 3)), "at most 2"),
    ],
)
def test_what_a_gpu_cannot_do_fails_with_a_reason_and_touches_nothing(world: World, says: str) -> None:
    world.settle(5)
    assert world.current.state == "Failed"
    assert says in world.current.message
    assert not world.done
    assert not world.offered


def test_a_v100_takes_as_many_mps_clients_as_later_gpus() -> None:
    world = World(wanted=Sharing("MPS", replicas=48), capability=(7, 0))
    world.settle(10)
    assert as_wanted(world)


# ---- MPS ----


def test_a_daemon_that_ends_is_started_again_without_draining_anybody() -> None:
    world = World(wanted=MPS)
    world.settle(10)
    world.admit()
    world.crash_daemon()
    world.tick()
    assert world.current.state == "Changing"
    assert "exit status 1" in world.current.message
    world.settle(5)
    assert as_wanted(world)


def test_a_daemon_that_ends_again_and_again_has_failed_and_recovers_when_it_stays() -> None:
    world = World(wanted=MPS)
    world.settle(10)
    starts = 0
    for _ in range(200):
        if world.daemon is not None and world.daemon.state is DaemonState.SERVING:
            starts += 1
            world.crash_daemon("exit status 1: no device")
        world.tick()
    assert starts < 12
    assert world.current.state == "Failed"
    assert "no device" in world.current.message
    world.settle(400)
    assert as_wanted(world)


def test_a_daemon_that_hangs_is_stopped_and_started_again() -> None:
    world = World(wanted=MPS)
    world.settle(10)
    assert world.daemon is not None
    done = len(world.done)
    world.daemon = type(world.daemon)(
        MPS, ComputeMode.DEFAULT, DaemonState.SILENT, frozenset({7}), "no answer"
    )
    world.settle(int(SILENT_DAEMON_S) - 2)
    assert len(world.done) == done
    world.settle(10)
    assert [type(step) for step in world.done[done:]] == [StopMps, StartMps]
    assert as_wanted(world)


def test_a_plugin_that_starts_anew_takes_over_a_serving_daemon() -> None:
    world = World(wanted=MPS)
    world.settle(10)
    world.admit()
    done = len(world.done)
    world.restart()
    world.settle(3)
    assert as_wanted(world)
    assert len(world.done) == done


def test_the_compute_mode_is_restored_to_what_it_was_also_by_a_plugin_that_starts_anew() -> None:
    world = World(wanted=MPS, compute_mode=ComputeMode.EXCLUSIVE_PROCESS)
    world.settle(10)
    world.restart()
    world.wanted = EXCLUSIVE
    world.settle(10)
    assert world.compute_mode is ComputeMode.EXCLUSIVE_PROCESS
    assert world.daemon is None
    world = World(wanted=MPS)
    world.settle(10)
    world.restart()
    world.wanted = EXCLUSIVE
    world.settle(10)
    assert world.compute_mode is ComputeMode.DEFAULT


# ---- MIG ----


def test_slices_in_use_stay_while_the_layout_changes_around_them() -> None:
    world = World(wanted=MIG)
    world.settle(10)
    assert world.instances is not None
    used = next(instance for instance in world.instances if instance.profile == "1g.10gb")
    world.admit(used.uuid)
    done = len(world.done)
    world.wanted = Sharing("MIG", mig_layout=("1g.10gb", "2g.20gb", "2g.20gb"))
    for _ in range(15):
        world.tick()
        assert used.uuid in world.offered
    assert as_wanted(world)
    assert used in (world.instances or ())
    assert {type(step) for step in world.done[done:]} == {DestroyInstance, CreateInstance}


def test_a_slice_in_use_that_must_go_is_waited_for_and_the_others_stay_too() -> None:
    world = World(wanted=MIG)
    world.settle(10)
    assert world.instances is not None
    large = next(instance for instance in world.instances if instance.profile == "3g.40gb")
    world.admit(large.uuid)
    before = world.instances
    world.wanted = Sharing("MIG", mig_layout=("7g.80gb",))
    world.settle(10)
    assert world.current.message == "waits for 1 pod: ns/p0"
    assert world.instances == before
    world.pods.clear()
    world.settle(10)
    assert as_wanted(world)


# ---- anything, in any order ----


FATES = ("", "one pod ends", "all pods end", "restart", "crash before", "crash after", "daemon ends")
EPISODES = st.lists(
    st.tuples(
        st.sampled_from(MODES),
        st.integers(0, 6),
        st.integers(0, 2),
        st.integers(0, 8),
        st.sampled_from(FATES),
    ),
    min_size=1,
    max_size=12,
)
"""What is wanted, ticks unseen by the kubelet, pods that then come, ticks that it sees, and how it ends."""


def assert_fits_the_hardware(world: World, devices: AbstractSet[str]) -> None:
    """What the kubelet may give away, or gave away, must be what the GPU is set up for."""
    if world.instances is not None:
        assert devices <= {instance.uuid for instance in world.instances}
    else:
        assert not any(device.startswith("MIG-") for device in devices)
    if world.daemon is not None and devices:
        assert GPU not in devices
        assert len(devices) <= max(world.daemon.sharing.shares, 80)


@given(EPISODES)
@settings(max_examples=80, deadline=None)
def test_no_gpu_is_sold_twice_and_each_change_ends_whatever_happens_meanwhile(
    episodes: list[tuple[Sharing, int, int, int, str]],
) -> None:
    world = World()
    world.settle(2)
    for wanted, unseen, pods, seen, fate in episodes:
        world.wanted = wanted
        for _ in range(unseen):
            world.tick(sync=False)
        for _ in range(pods):
            world.admit()
        assert_fits_the_hardware(world, world.listed | world.pods.keys())
        for _ in range(seen):
            world.tick()
            assert_fits_the_hardware(world, world.listed | world.pods.keys())
        suffer(world, fate)
        assert len(world.kinds_held) <= 1
    world.pods.clear()
    world.settle(400)
    assert as_wanted(world), world.current


def suffer(world: World, fate: str) -> None:
    match fate:
        case "one pod ends" if world.pods:
            world.pods.popitem()
        case "all pods end":
            world.pods.clear()
        case "restart":
            world.restart()
        case "crash before" | "crash after":  # in the middle of a step that was done or not
            for step in world.decide().steps:
                if fate == "crash after":
                    world.do(step)
            world.restart()
        case "daemon ends" if world.daemon is not None and world.daemon.state is DaemonState.SERVING:
            world.crash_daemon()


def test_the_world_refuses_what_it_was_told_to() -> None:
    world = World(refuses="StopMps")
    with pytest.raises(StepRefusedError):
        world.do(StopMps(GPU))


@pytest.mark.parametrize(("wanted", "refuses"), [(MIG, "SetMigMode"), (MPS, "StartMps")])
def test_a_gpu_that_fails_for_days_is_still_tried_again(wanted: Sharing, refuses: str) -> None:
    world = World(wanted=wanted, refuses=refuses)
    for _ in range(1500):
        world.now += LONGEST_PAUSE_S
        world.tick()
    assert world.current.state == "Failed"
    world.refuses = ""
    world.now += LONGEST_PAUSE_S
    world.settle(30)
    assert as_wanted(world), world.current


@pytest.mark.parametrize("mode", ["TimeSlice", "MPS"])
@pytest.mark.parametrize("memory_mib", [0, 1023])
def test_a_gpu_without_a_gib_is_not_silently_sold_by_memory(mode: SharingMode, memory_mib: int) -> None:
    world = World(wanted=Sharing(mode, unit="Memory"), memory_mib=memory_mib)
    world.settle(5)
    assert world.current.state == "Failed"
    assert "choose unit Replica" in world.current.message
    world.wanted = Sharing(mode, replicas=2)
    world.settle(10)
    assert as_wanted(world), world.current
    assert len(world.offered) == 2


@pytest.mark.parametrize("wanted", [MPS, EXCLUSIVE, TIME_SLICE, MIG])
def test_a_gpu_whose_daemon_is_not_known_is_left_as_it_is_and_holds_up_no_other(wanted: Sharing) -> None:
    world = World(wanted=MPS)
    world.settle(30)
    other = "GPU-00000000-0000-4000-8000-000000000001"
    known = replace(world.observe(), wanted={GPU: wanted})
    unknown = replace(known, unreadable={GPU: "daemon.json cannot be read"}, daemons={})
    both = replace(
        unknown,
        wanted={GPU: wanted, other: TIME_SLICE},
        facts={GPU: world.facts, other: replace(world.facts, compute_mode=ComputeMode.DEFAULT)},
    )
    for now in range(100, 200):
        decision = world.transitions.decide(both, float(now))
        assert not [step for step in decision.steps if step.uuid == GPU]
        current = decision.sharing[GPU]
        assert (current.sharing, current.state) == (MPS, "Active")
        assert current.message == "daemon.json cannot be read"
    assert decision.sharing[other].sharing == TIME_SLICE
    assert decision.sharing[other].state == "Active"
    assert world.transitions.decide(known, 200.0).sharing[GPU].message != "daemon.json cannot be read"


def test_a_gpu_whose_daemon_was_never_known_is_not_offered() -> None:
    world = World(wanted=MPS)
    unknown = replace(world.observe(), unreadable={GPU: "daemon.json cannot be read"})
    decision = SharingTransitions().decide(unknown, 1.0)
    assert decision.sharing[GPU] == CurrentSharing(MPS, "Failed", "daemon.json cannot be read")
    assert not decision.steps
