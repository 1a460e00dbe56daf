"""Gangs through a real kube-scheduler: whole or not at all, whatever happens meanwhile.

The nodes are only objects, for what becomes of a pod once it is bound is of no account here.
"""

from collections.abc import Iterator

import pytest

from tests.cluster.scheduling import (
    LABEL,
    LABELS,
    Extender,
    Pods,
    add_node,
    add_pod,
    bound,
    devices_of,
    is_bound,
    message_of,
    pod,
    wait_until_bound,
    watch_pods,
    why_waiting,
)
from tools.cluster import Cluster

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("clean")]


@pytest.fixture(scope="module", autouse=True)
def started(extender: Extender) -> Iterator[None]:
    extender.start_ready()
    yield
    extender.stop()


def members(gang: str, size: int, *numbers: int, gpus: int = 2, priority_class: str = "") -> Pods:
    """Pods of the gang, by name: all of them, or those with these numbers."""
    names = [f"{gang}-{number}" for number in numbers or range(size)]
    return {name: pod(name, gpus, priority_class, gang, size) for name in names}


def wait_until_all_wait(cluster: Cluster, names: list[str], words: str) -> Pods:
    """Watch until all these wait with `words`; return all pods."""
    return watch_pods(
        cluster,
        f"{names} to wait because of {words!r}",
        lambda pods: all(words in message_of(pods.get(name)) for name in names),
    )


def delete(cluster: Cluster, *names: str) -> None:
    cluster.kubectl("delete", "pod", *names, "--grace-period=0", "--force")


def test_a_gang_gets_all_that_it_asks_for(control_plane: Cluster, extender: Extender) -> None:
    for node in ("a", "b"):
        add_node(control_plane, node, {})
    extender.wait_until_fitting(4, ["a", "b"], of=["a", "b"])
    gang = members("whole", 4)
    control_plane.apply(*gang.values())
    assert len(set(devices_of(wait_until_bound(control_plane, *gang)))) == 8


def test_one_that_does_not_fit_holds_nothing_and_is_admitted_when_room_appears(
    control_plane: Cluster, extender: Extender
) -> None:
    add_node(control_plane, "a", {})
    add_node(control_plane, "b", {0: "other/x", 1: "other/x"})
    extender.wait_until_fitting(2, ["a", "b"], of=["a", "b"])
    gang = members("waits", 4)
    control_plane.apply(*gang.values())
    pods = wait_until_all_wait(control_plane, [*gang], "gang waits: 3 of 4 pods of 2 GPUs would fit")
    assert not any(map(is_bound, pods.values()))
    add_pod(control_plane, "single", 2)
    assert bound(control_plane, "single") in ("a", "b"), "the gang holds nothing while it waits"
    add_node(control_plane, "c", {})
    found = wait_until_bound(control_plane, "single", *gang)
    assert len(set(devices_of(found))) == 10


def test_of_two_that_compete_one_is_admitted_whole_and_the_other_when_that_one_goes(
    control_plane: Cluster, extender: Extender
) -> None:
    for node in ("a", "b"):
        add_node(control_plane, node, {})
    extender.wait_until_fitting(4, ["a", "b"], of=["a", "b"])
    gangs = {name: members(name, 3) for name in ("red", "blue")}
    one_of_each_in_turn = zip(*(gang.values() for gang in gangs.values()), strict=True)
    control_plane.apply(*(member for pair in one_of_each_in_turn for member in pair))

    def one_is_whole_and_the_other_waits(pods: Pods) -> bool:
        whole = [name for name, gang in gangs.items() if all(is_bound(pods.get(each)) for each in gang)]
        waits = [
            name
            for name, gang in gangs.items()
            if all(f"gang {name}: 1 of 3 pods of 2 GPUs" in message_of(pods.get(each)) for each in gang)
        ]
        return len(whole) == len(waits) == 1

    pods = watch_pods(control_plane, "one gang to be whole", one_is_whole_and_the_other_waits)
    (first,) = (name for name, gang in gangs.items() if is_bound(pods[next(iter(gang))]))
    (second,) = gangs.keys() - {first}
    assert not any(is_bound(pods[each]) for each in gangs[second])
    delete(control_plane, *gangs[first])
    assert len(set(devices_of(wait_until_bound(control_plane, *gangs[second])))) == 6


def test_a_member_that_is_deleted_meanwhile_is_replaced_in_the_room_of_the_gang(
    control_plane: Cluster, extender: Extender
) -> None:
    for node in ("a", "b"):
        add_node(control_plane, node, {})
    extender.wait_until_fitting(4, ["a", "b"], of=["a", "b"])
    gang = members("replaced", 4)
    first = [*gang][:3]
    control_plane.apply(*(gang[name] for name in first))
    wait_until_bound(control_plane, *first)
    delete(control_plane, "replaced-1")
    add_pod(control_plane, "single", 4)
    why_waiting(control_plane, "single", "Insufficient mcp2026.io/gpu")
    control_plane.apply(gang["replaced-1"], gang["replaced-3"])
    assert len(set(devices_of(wait_until_bound(control_plane, *gang)))) == 8


def test_nobody_is_evicted_for_a_single_member_of_a_gang_that_would_still_not_fit(
    control_plane: Cluster, extender: Extender
) -> None:
    add_node(control_plane, "a", {})
    extender.wait_until_fitting(4, ["a"], of=["a"])
    add_pod(control_plane, "holds", 4)
    bound(control_plane, "holds")
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    control_plane.apply({**priority, "metadata": {"name": "high", "labels": LABELS}})
    gang = members("important", 2, gpus=4, priority_class="high")
    control_plane.apply(*gang.values())
    pods = wait_until_all_wait(control_plane, [*gang], "no candidate node for preemption")
    assert "deletionTimestamp" not in pods["holds"]["metadata"]
    control_plane.kubectl("delete", "priorityclass", "--selector", LABEL)


def test_what_is_held_for_members_that_do_not_come_is_free_after_the_deadline(
    control_plane: Cluster, extender: Extender
) -> None:
    extender.stop()
    extender.configuration.write_text("gangDeadlineSeconds: 6\n")
    extender.start_ready()
    for node in ("a", "b"):
        add_node(control_plane, node, {})
    extender.wait_until_fitting(4, ["a", "b"], of=["a", "b"])
    gang, other = members("late", 4), members("other", 2)
    control_plane.apply(gang["late-0"], *other.values())
    wait_until_bound(control_plane, "late-0")
    pods = wait_until_all_wait(control_plane, [*other], "room is held for another gang, for")
    assert not any(is_bound(pods[name]) for name in other)
    control_plane.wait_for("the deadline to pass", lambda: extender.fitting(2, "a", "b"))
    # No event comes with the deadline. A new pod finds the room, and its binding lets the others look again.
    add_pod(control_plane, "single", 2)
    found = wait_until_bound(control_plane, "late-0", "single", *other)
    assert len(set(devices_of(found))) == 8
    control_plane.apply(gang["late-1"])
    why_waiting(control_plane, "late-1", "Insufficient mcp2026.io/gpu")
