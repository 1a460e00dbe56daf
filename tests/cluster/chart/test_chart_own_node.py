"""A device plugin may write what belongs to its own node, and of the node its taint alone."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mcp2026.device_plugin.adapters.events import gpu_event
from mcp2026.topology.machine import Gpu
from tools.cluster.cluster import Cluster
from tools.cluster.errors import ClusterError

pytestmark = pytest.mark.control_plane

KEY = "node.kubernetes.io/device-unhealthy"
OURS = {"key": KEY, "value": "Xid79", "effect": "NoSchedule"}
OTHER = {"key": "other", "effect": "NoSchedule"}
POLICY = "mcp2026-device-plugin-own-node"


class Account:
    """The plugin's service account with a token of `node`, as a kubelet asks for it, or of no node."""

    def __init__(self, cluster: Cluster, namespace: str, node: str, folder: Path) -> None:
        self._cluster = cluster
        bound: list[str] = []
        if node:
            uid = cluster.get("node", node)["metadata"]["uid"]
            bound = ["--bound-object-kind=Node", f"--bound-object-name={node}", f"--bound-object-uid={uid}"]
        token = cluster.kubectl("create", "token", "mcp2026-device-plugin", "-n", namespace, *bound).strip()
        self._kubeconfig = folder / f"kubeconfig-{node or 'nowhere'}"
        self._kubeconfig.write_text(cluster.kubeconfig.read_text())
        cluster.kubectl(
            "config", "set-credentials", "plugin", f"--token={token}", f"--kubeconfig={self._kubeconfig}"
        )
        cluster.kubectl(
            "config", "set-context", "--current", "--user=plugin", f"--kubeconfig={self._kubeconfig}"
        )

    def __call__(self, *arguments: str, body: dict[str, Any] | None = None) -> str:
        text = None if body is None else json.dumps(body)
        return self._cluster.kubectl(*arguments, f"--kubeconfig={self._kubeconfig}", input=text)

    def patch(self, node: str, change: dict[str, Any]) -> str:
        return self("patch", "node", node, "--type=merge", "-p", json.dumps(change))

    def apply_topology(self, node: str) -> str:
        topology = {"apiVersion": "mcp2026.io/v1alpha1", "kind": "GPUTopology", "metadata": {"name": node}}
        return self("apply", "--server-side", "--force-conflicts", "-f", "-", body=topology)


@pytest.fixture
def nodes(control_plane: Cluster) -> Iterator[tuple[str, str]]:
    for name in ("own", "other"):
        control_plane.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    yield "own", "other"
    for name in ("own", "other"):
        control_plane.kubectl("delete", "node", name)
        control_plane.kubectl("delete", "gputopology", name, "--ignore-not-found")


@pytest.fixture
def own(control_plane: Cluster, installed: str, nodes: tuple[str, str], tmp_path: Path) -> Account:
    account = Account(control_plane, installed, "own", tmp_path)

    def in_force() -> bool:
        try:
            account.patch("other", {"metadata": {"labels": {"probe": "1"}}})
        except ClusterError:
            return True
        return False

    control_plane.wait_for("the policy is in force", in_force)
    control_plane.kubectl("label", "node", "other", "probe-")
    return account


def taint_by_others(cluster: Cluster, node: str) -> None:
    taints = {"spec": {"taints": [OTHER]}}
    cluster.kubectl("patch", "node", node, "--type=merge", "-p", json.dumps(taints))


def test_a_plugin_writes_what_belongs_to_its_node(control_plane: Cluster, own: Account) -> None:
    control_plane.kubectl(
        "patch", "node", "own", "--type=merge", "-p", json.dumps({"spec": {"taints": [OTHER]}})
    )
    own.patch("own", {"spec": {"taints": [OTHER, OURS]}})
    assert control_plane.get("node", "own")["spec"]["taints"] == [OTHER, OURS]
    own.patch("own", {"spec": {"taints": [OTHER]}})
    own.apply_topology("own")
    event = gpu_event(Gpu(0, "GPU-0", "A100", 40960, "", 0), None, "own", datetime.now(UTC))
    own("create", "-f", "-", body=event)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"spec": {"taints": [OURS]}}, id="its taint, and not that of others"),
        pytest.param({"spec": {"taints": [OTHER | {"value": "x"}, OURS]}}, id="the taint of others"),
        pytest.param({"metadata": {"labels": {"a": "b"}}}, id="labels"),
        pytest.param({"metadata": {"annotations": {"a": "b"}}}, id="annotations"),
        pytest.param({"spec": {"unschedulable": True}}, id="whether it can be scheduled to"),
    ],
)
def test_of_its_node_it_changes_nothing_else(
    control_plane: Cluster, own: Account, change: dict[str, Any]
) -> None:
    control_plane.kubectl(
        "patch", "node", "own", "--type=merge", "-p", json.dumps({"spec": {"taints": [OTHER]}})
    )
    with pytest.raises(ClusterError, match="device-unhealthy alone"):
        own.patch("own", change)


def test_another_node_is_out_of_its_reach(
    control_plane: Cluster, own: Account, installed: str, tmp_path: Path
) -> None:
    with pytest.raises(ClusterError, match="its own node's name"):
        own.patch("other", {"spec": {"taints": [OURS]}})
    with pytest.raises(ClusterError, match="its own node's name"):
        own.apply_topology("other")
    event = gpu_event(Gpu(0, "GPU-0", "A100", 40960, "", 0), None, "other", datetime.now(UTC))
    with pytest.raises(ClusterError, match="its own node's name"):
        own("create", "-f", "-", body=event)
    nowhere = Account(control_plane, installed, "", tmp_path)
    with pytest.raises(ClusterError, match="its own node's name"):
        nowhere.apply_topology("own")
