"""The extender goes away while pods are scheduled: no pod is lost, no GPU given away twice, no wait is long.

The nodes are only objects: what counts here is what kube-scheduler and the API server do, and they are real.
"""

from threading import Thread

import pytest

from tests.cluster.scheduling import (
    Extender,
    Pods,
    add_node,
    add_pod,
    bound,
    devices_of,
    is_bound,
    node_of,
    pod,
    wait_until_bound,
    watch_pods,
    why_waiting,
)
from tools.cluster import Cluster

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("clean")]

KILLS = 2
BURST = 32


def test_pods_of_a_burst_are_each_bound_once_though_the_extender_is_killed_in_the_midst_of_it(
    control_plane: Cluster, ready: Extender
) -> None:
    nodes = [f"n{number:02}" for number in range(BURST // 4)]
    for node in nodes:
        add_node(control_plane, node, {}, cpus=64)
    ready.wait_until_fitting(4, nodes, of=nodes)
    burst = {f"burst-{number:02}": pod(f"burst-{number:02}", 1) for number in range(BURST)}
    creating = Thread(target=control_plane.apply, args=burst.values())
    creating.start()
    for kill in range(1, KILLS + 1):
        enough = kill * BURST // (KILLS + 1)
        watch_pods(control_plane, f"{enough} bound", lambda pods: count_bound(pods) >= enough)  # noqa: B023
        ready.stop()
        ready.start_ready()
    creating.join()
    found = wait_until_bound(control_plane, *burst)
    assert len(set(devices_of(found))) == len(devices_of(found)) == BURST, "every GPU is reserved once"
    ready.wait_until_fitting(1, [], of=nodes)


def count_bound(pods: Pods) -> int:
    return sum(map(is_bound, pods.values()))


def test_while_the_extender_is_away_gpu_pods_wait_and_say_so_and_others_do_not(
    control_plane: Cluster, extender: Extender
) -> None:
    add_node(control_plane, "idle", {})
    add_pod(control_plane, "waits", 1)
    # These are kube-scheduler's own words, and its own reasons.
    assert f"127.0.0.1:{extender.port}/v1/filter" in why_waiting(control_plane, "waits", "connection refused")
    (condition,) = control_plane.get("pod", "waits")["status"]["conditions"]
    assert condition["reason"] == "SchedulerError"
    told = "jsonpath={.items[*].reason}"
    selector = "--field-selector=involvedObject.name=waits"

    def events() -> str:
        return control_plane.kubectl("get", "events", selector, "-o", told)

    assert "FailedScheduling" in control_plane.wait_for("the event", events)
    add_pod(control_plane, "needs-none", 0)
    assert bound(control_plane, "needs-none") == "idle"
    assert node_of(control_plane, "waits") == ""
    extender.start_ready()
    try:
        wait_until_bound(control_plane, "waits", timeout_s=10)
    finally:
        extender.stop()
