"""The plugin as a process beside a real API server: a GPU that fails taints the node, and leaves an event."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.kubelet import FakeKubelet
from tests.fakes.nvml import FakeNvml
from tests.fakes.plugin_process import PAIRS, PluginProcess, StartPlugin
from tools.cluster import Cluster

pytest_plugins = ["tests.fakes.plugin_fixtures"]
pytestmark = pytest.mark.control_plane

REPOSITORY = Path(__file__).parents[2]
OTHER = {"key": "other", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def cluster(control_plane: Cluster) -> Cluster:
    control_plane.apply((REPOSITORY / "crds" / "gputopologies.yaml").read_text())
    control_plane.kubectl(
        "wait", "--for=condition=Established", "crd/gputopologies.mcp2026.io", "--timeout=30s"
    )
    return control_plane


@pytest.fixture
def start(
    cluster: Cluster, kubelet: FakeKubelet, kubelet_root: Path, nvml: FakeNvml, start_plugin: StartPlugin
) -> Callable[[str, str], PluginProcess]:
    """Start the plugin of a node with the section `health` of its configuration."""

    def start(node: str, health: str) -> PluginProcess:
        configuration = kubelet_root / "health.yaml"
        configuration.write_text(f"health: {health}\n")
        environment = {"KUBECONFIG": str(cluster.kubeconfig)}
        flags = ("--publish-topology", f"--config={configuration}")
        plugin = start_plugin(nvml, *flags, node=node, environment=environment)
        plugin.wait_for_log("registered mcp2026.io/gpu")
        kubelet.wait_until(lambda: "nvmlEventSetWait_v2" in nvml.calls(), "somebody listens to events")
        return plugin

    return start


def add_node(cluster: Cluster, name: str, *taints: dict[str, str]) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    patch = {"spec": {"taints": list(taints)}}
    cluster.kubectl("patch", "node", name, "--type=merge", "-p", json.dumps(patch))


def taints(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.get("node", name)["spec"].get("taints", [])
    return [{field: value for field, value in taint.items() if field != "timeAdded"} for taint in found]


def ours(reason: str, effect: str = "NoSchedule") -> dict[str, str]:
    return {"key": "node.kubernetes.io/device-unhealthy", "value": reason, "effect": effect}


def test_a_failed_gpu_taints_the_node_beside_others_until_it_is_well_again(
    cluster: Cluster, nvml: FakeNvml, start: Callable[[str, str], PluginProcess]
) -> None:
    add_node(cluster, "fails", OTHER)
    start("fails", "{recoverAfterSeconds: 3}")
    nvml.emit_xid(2, 79)
    cluster.wait_for("the taint", lambda: taints(cluster, "fails") == [OTHER, ours("Xid79")])

    def condition() -> bool:
        status = cluster.get("gputopology", "fails").get("status", {})
        found = {one["type"]: one for one in status.get("conditions", [])}
        healthy = found.get("Healthy", {})
        return healthy.get("status") == "False" and "reboot the node" in healthy.get("message", "")

    cluster.wait_for("the condition", condition)
    cluster.wait_for("no taint", lambda: taints(cluster, "fails") == [OTHER])

    def notes() -> list[tuple[str, str]]:
        selector = "--field-selector=involvedObject.kind=Node,involvedObject.name=fails"
        events = cluster.get("events", "-n", "default", selector)["items"]
        told = [(event["reason"], event["message"]) for event in events]
        return [(reason, note) for reason, note in told if reason.startswith("Gpu")]  # not of the node's life

    cluster.wait_for("two events", lambda: len(notes()) == 2)
    told = dict(notes())
    assert PAIRS[2] in told["GpuUnhealthy"]
    assert "XID 79" in told["GpuUnhealthy"]
    assert "healthy again" in told["GpuHealthy"]


def test_a_taint_that_was_left_behind_goes_once_all_is_seen_to_be_well(
    cluster: Cluster, start: Callable[[str, str], PluginProcess]
) -> None:
    add_node(cluster, "left", ours("Xid48"), OTHER)
    start("left", "{}")
    cluster.wait_for("no taint", lambda: taints(cluster, "left") == [OTHER])


def test_a_restart_keeps_the_taint_of_a_gpu_that_does_not_answer(
    cluster: Cluster, nvml: FakeNvml, start: Callable[[str, str], PluginProcess]
) -> None:
    add_node(cluster, "stays")
    plugin = start("stays", "{taintEffect: PreferNoSchedule}")
    nvml.set_fact(1, "remapping_pending", 1)
    expected = [ours("PendingRepair", "PreferNoSchedule")]
    cluster.wait_for("the taint", lambda: taints(cluster, "stays") == expected)
    before = cluster.get("node", "stays")["metadata"]["resourceVersion"]
    assert plugin.stop() == 0
    plugin = start("stays", "{taintEffect: PreferNoSchedule}")
    plugin.wait_for_log("row remapping is pending")
    assert taints(cluster, "stays") == expected
    assert cluster.get("node", "stays")["metadata"]["resourceVersion"] == before


def test_the_node_is_tainted_when_all_have_failed_if_so_set(
    cluster: Cluster, nvml: FakeNvml, start: Callable[[str, str], PluginProcess]
) -> None:
    add_node(cluster, "all")
    plugin = start("all", "{taintWhen: All, recoverAfterSeconds: 600}")
    for gpu in range(3):
        nvml.emit_xid(gpu, 94)
    plugin.wait_for_log(PAIRS[2])
    assert taints(cluster, "all") == []
    nvml.emit_xid(3, 94)
    cluster.wait_for("the taint", lambda: taints(cluster, "all") == [ours("Xid94")])
