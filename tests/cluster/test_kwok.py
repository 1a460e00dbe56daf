"""Played nodes are Ready, offer what they were told to, and take pods."""

import pytest

from tools.cluster import Cluster
from tools.cluster.kwok import add_nodes, played_node

pytestmark = pytest.mark.kwok


def test_pods_run_on_played_nodes_that_offer_gpus(kwok_cluster: Cluster) -> None:
    add_nodes(kwok_cluster, [played_node("gpus", {"mcp2026.io/gpu": "8"}, {"zone": "a"})])
    limits = {"limits": {"mcp2026.io/gpu": "2"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asks-for-gpus"},
        "spec": {"containers": [{"name": "main", "image": "none", "resources": limits}]},
    }
    kwok_cluster.apply(pod)
    kwok_cluster.wait("pod/asks-for-gpus", "condition=Ready")
    assert kwok_cluster.get("pod", "asks-for-gpus")["spec"]["nodeName"] == "gpus"
