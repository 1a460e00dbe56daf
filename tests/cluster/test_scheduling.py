"""Where a real kube-scheduler with the README's configuration and the real extender put pods, and why not."""

from pathlib import Path

import pytest

from tests.cluster.scheduling import (
    LABEL,
    LABELS,
    PAIRS,
    Extender,
    add_node,
    add_pod,
    bound,
    install_gpu_topologies,
    patch_status,
    reserved,
    why_waiting,
)
from tests.fakes.clusters import topology
from tools.cluster import Cluster, up
from tools.cluster.control_plane import ControlPlaneOptions
from tools.cluster.processes import end, start

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("clean")]


def test_two_gpus_go_where_a_linked_pair_is_free(control_plane: Cluster, ready: Extender) -> None:
    add_node(control_plane, "linked", {0: "other/a", 1: "other/b"})
    # Far more processors: by its own terms alone, kube-scheduler would take the emptier node.
    add_node(control_plane, "split", {1: "other/a", 3: "other/b"}, cpus=96)
    ready.wait_until_fitting(2, ["linked", "split"], of=["linked", "split"])
    add_pod(control_plane, "no-gpu", 0)
    assert bound(control_plane, "no-gpu") == "split"
    add_pod(control_plane, "pair", 2)
    assert bound(control_plane, "pair") == "linked"


def test_exact_gpus_are_reserved_in_the_act_of_binding(control_plane: Cluster, ready: Extender) -> None:
    add_node(control_plane, "node", {1: "other/a"})
    ready.wait_until_fitting(3, ["node"], of=["node"])
    for name, gpus, expected in (("pair", 2, [2, 3]), ("single", 1, [0])):
        add_pod(control_plane, name, gpus)
        assert bound(control_plane, name) == "node"
        assert reserved(control_plane, name) == expected


def test_an_important_pod_evicts_the_two_that_hold_a_linked_pair(
    control_plane: Cluster, ready: Extender
) -> None:
    add_node(control_plane, "node", {})
    ready.wait_until_fitting(4, ["node"], of=["node"])
    names = ("a", "b", "c", "d")
    holders = {}
    for name in names:
        add_pod(control_plane, name, 1)
        bound(control_plane, name)
        (holders[name],) = reserved(control_plane, name)
    assert sorted(holders.values()) == [0, 1, 2, 3]
    # One of the first pair is protected, so the second pair goes, whoever was bound first.
    protecting = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "labels": LABELS},
    }
    kept = next(name for name, gpu in holders.items() if gpu == 0)
    control_plane.kubectl("label", "pod", kept, "keep=yes")
    control_plane.apply(
        protecting | {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"keep": "yes"}}}}
    )
    control_plane.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high", "labels": LABELS},
            "value": 1000,
        }
    )
    add_pod(control_plane, "important", 2, priority_class="high")

    def leaving() -> set[str]:
        pods = {name: control_plane.get("pod", name) for name in names}
        return {name for name, pod in pods.items() if pod["metadata"].get("deletionTimestamp")}

    victims = control_plane.wait_for("victims", leaving)
    assert {holders[name] for name in victims} == {2, 3}
    for name in victims:  # there is no kubelet that would end them
        control_plane.kubectl("delete", "pod", name, "--grace-period=0", "--force")
    assert bound(control_plane, "important", timeout_s=60) == "node"
    assert reserved(control_plane, "important") == [2, 3]
    control_plane.kubectl("delete", "pdb,priorityclass", "--selector", LABEL)


def test_pods_fill_a_node_up_and_the_next_one_goes_elsewhere(control_plane: Cluster, ready: Extender) -> None:
    add_node(control_plane, "first", {})
    add_node(control_plane, "second", {0: "other/a", 2: "other/a"})
    ready.wait_until_fitting(2, ["first", "second"], of=["first", "second"])
    for name in ("a", "b"):
        add_pod(control_plane, name, 2)
        assert bound(control_plane, name) == "first", "each gets a linked pair"
    add_pod(control_plane, "c", 2)
    assert bound(control_plane, "c") == "second"
    ready.wait_until_fitting(1, [], of=["first", "second"])
    add_pod(control_plane, "d", 1)
    reason = "needs 1 GPU, 0 of 4 free (0,1,2,3 held)"
    assert reason in why_waiting(control_plane, "d", "0,1,2,3 held")


def test_a_pod_that_fits_nowhere_waits_with_our_reasons_and_goes_on_when_gpus_get_free(
    control_plane: Cluster, ready: Extender
) -> None:
    add_node(control_plane, "busy", {0: "other/a", 1: "other/a"})
    ready.wait_until_fitting(2, ["busy"], of=["busy"])
    add_pod(control_plane, "three", 3)
    reason = "needs 3 GPUs, 2 of 4 free (0,1 held)"
    assert reason in why_waiting(control_plane, "three", "needs 3 GPUs")

    def told() -> bool:
        events = control_plane.get("events", "--field-selector=involvedObject.name=three")["items"]
        return any(event["reason"] == "FailedScheduling" and reason in event["message"] for event in events)

    control_plane.wait_for("the event", told)
    # No node or pod changes with it: kube-scheduler looks again by its timer.
    patch_status(control_plane, "gputopology/busy", topology("busy", PAIRS)["status"])
    assert bound(control_plane, "three", timeout_s=90) == "busy"


def test_gpus_of_a_deleted_pod_are_given_away_before_the_topology_tells(
    control_plane: Cluster, ready: Extender
) -> None:
    add_node(control_plane, "full", {})
    ready.wait_until_fitting(4, ["full"], of=["full"])
    add_pod(control_plane, "first", 4)
    assert bound(control_plane, "first") == "full"
    holds_all = dict.fromkeys(range(4), "default/first")
    patch_status(control_plane, "gputopology/full", topology("full", PAIRS, holds_all)["status"])
    add_pod(control_plane, "second", 4)
    why_waiting(control_plane, "second", "mcp2026.io/gpu")
    control_plane.kubectl("delete", "pod", "first", "--grace-period=0", "--force")
    assert bound(control_plane, "second", timeout_s=14) == "full"  # before kube-scheduler's timer of 15 s


def test_unhealthy_gpus_are_avoided_and_given_when_they_are_well_again(
    control_plane: Cluster, ready: Extender
) -> None:
    """Nodes offer four GPUs all the time, as a kubelet does that has not heard of it yet."""
    add_node(control_plane, "sick", {}, unhealthy=(2,))
    add_node(control_plane, "busy", {0: "other/a"})
    ready.wait_until_fitting(3, ["busy", "sick"], of=["busy", "sick"])
    add_pod(control_plane, "four", 4)
    said = why_waiting(control_plane, "four", "unhealthy")
    assert "has 3 healthy GPUs, 4 asked (2 unhealthy)" in said
    assert "needs 4 GPUs, 3 of 4 free (0 held)" in said
    for name in ("one", "other"):
        add_pod(control_plane, name, 2)
    nodes = {bound(control_plane, name): reserved(control_plane, name) for name in ("one", "other")}
    assert nodes == {"sick": [0, 1], "busy": [2, 3]}
    add_pod(control_plane, "last", 2)
    assert "needs 2 GPUs, 1 of 4 free (0,1 held, 2 unhealthy)" in why_waiting(
        control_plane, "last", "2 unhealthy"
    )
    patch_status(control_plane, "gputopology/sick", topology("sick", PAIRS)["status"])
    ready.wait_until_fitting(2, ["sick"], of=["busy", "sick"])
    # With the topology goes what the kubelet says of the node; kube-scheduler looks again at that.
    control_plane.kubectl("label", "node", "sick", "mcp2026.io/noticed=yes")
    assert bound(control_plane, "last") == "sick"
    assert reserved(control_plane, "last") == [2, 3]


def test_nodes_that_can_never_fit_say_so(control_plane: Cluster, ready: Extender) -> None:
    add_node(control_plane, "small", {}, gpus=8)
    ready.wait_until_fitting(4, ["small"], of=["small"])
    add_pod(control_plane, "eight", 8)
    assert "has 4 GPUs, 8 asked" in why_waiting(control_plane, "eight", "8 asked")
    control_plane.kubectl("delete", "gputopology", "small")
    ready.wait_until_fitting(1, [], of=["small"])
    add_pod(control_plane, "one", 1)
    assert "is the device plugin running?" in why_waiting(control_plane, "one", "no GPUTopology")


def test_the_api_server_may_restart(tmp_path: Path) -> None:
    options = ControlPlaneOptions(scheduler=False)
    with up("test-extender-restart", options=options, owned=True, report=lambda _: None) as cluster:
        install_gpu_topologies(cluster)
        add_node(cluster, "before", {})
        extender = Extender(cluster, tmp_path)
        extender.start_ready()
        (server,) = [program for program in cluster.record.programs if program.program == "kube-apiserver"]
        command = Path(f"/proc/{server.identity.pid}/cmdline").read_text().rstrip("\0").split("\0")
        end([server.identity])
        cluster.wait_for(
            "the extender to notice", lambda: 'watch_breaks_total{kind="nodes"}' in extender.get("/metrics")
        )
        assert extender.get("/readyz").startswith("200"), "it still answers from what it knew"
        start(cluster.record, "kube-apiserver", command)
        cluster.wait_for("the API server", lambda: cluster.kubectl("get", "--raw", "/readyz") == "ok")
        add_node(cluster, "after", {})
        extender.wait_until_fitting(4, ["before", "after"], of=["before", "after"])
