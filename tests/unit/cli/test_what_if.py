"""`mcp2026 what-if`: where pods would go, in a cluster from a file that is changed as asked."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mcp2026.cli.__main__ import app
from mcp2026.cli.errors import CommandError
from mcp2026.cli.what_if_command import what_if
from mcp2026.topology.errors import TopologyError
from tests.fakes.clusters import node, pod, topology

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
PAIRS = "4xa100-pcie-nvlink-pairs"


def pods(folder: Path, *asks: dict[str, Any], kind: str = "Pod") -> Path:
    documents = []
    for number, limits in enumerate(asks):
        spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
        if kind != "Pod":
            spec = {"replicas": 2, "template": {"spec": spec}}
        documents.append(json.dumps({"kind": kind, "metadata": {"name": f"p{number}"}, "spec": spec}))
    path = folder / "pods.yaml"
    path.write_text("\n---\n".join(documents))
    return path


def cluster(folder: Path, *topologies: dict[str, Any], bound: tuple[dict[str, Any], ...] = ()) -> Path:
    items = [
        *({**node(document["metadata"]["name"]), "kind": "Node"} for document in topologies),
        *topologies,
        *({**each, "kind": "Pod"} for each in bound),
        {"kind": "Service", "metadata": {"name": "x"}},
    ]
    path = folder / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return path


def asked(file: Path, snapshot: Path, **more: Any) -> list[dict[str, Any]]:
    wishes = {"save": None, "nodes": (), "layouts": (), "why": False} | more
    decisions: list[dict[str, Any]] = json.loads(what_if([file], snapshot, as_json=True, **wishes))
    return decisions


def devices(decision: dict[str, Any]) -> list[str]:
    return [device for each in decision["reserved"].values() for those in each.values() for device in those]


GPU = "mcp2026.io/gpu"


def test_each_pod_sees_those_before_it(tmp_path: Path) -> None:
    snapshot = cluster(tmp_path, topology("n", PAIRS))
    first, second, third = asked(pods(tmp_path, {GPU: 2}, {GPU: 2}, {GPU: 1}), snapshot)
    assert (first["node"], second["node"], third["node"]) == ("n", "n", "")
    assert len({*devices(first), *devices(second)}) == 4
    assert third["refused"][0]["reason"] == "needs 1 GPU, 0 of 4 free (0,1,2,3 held)"


def test_pods_that_are_bound_already_keep_what_they_have(tmp_path: Path) -> None:
    snapshot = cluster(tmp_path, topology("n", PAIRS, {0: "default/a"}), bound=(pod("a", 1, "n"),))
    (decision,) = asked(pods(tmp_path, {GPU: 2}), snapshot)
    assert [device[-1] for device in devices(decision)] == ["2", "3"]


def test_a_deployment_gives_as_many_pods_as_it_has_replicas(tmp_path: Path) -> None:
    snapshot = cluster(tmp_path, topology("n", PAIRS))
    decisions = asked(pods(tmp_path, {GPU: 1}, kind="Deployment"), snapshot)
    assert [decision["pod"] for decision in decisions] == ["default/p0-0", "default/p0-1"]


def test_a_node_that_is_not_there_can_be_added(tmp_path: Path) -> None:
    file = pods(tmp_path, {GPU: 8})
    snapshot = cluster(tmp_path, topology("n", PAIRS))
    assert asked(file, snapshot)[0]["node"] == ""
    nodes = (f"more={TOPOLOGIES / 'hgx-h100-8gpu.yaml'}",)
    assert asked(file, snapshot, nodes=nodes)[0]["node"] == "more"


def test_an_idle_gpu_can_be_cut(tmp_path: Path) -> None:
    file = pods(tmp_path, *[{"mcp2026.io/mig-3g.40gb": 1}] * 3)
    snapshot = cluster(tmp_path, topology("n", PAIRS))
    decisions = asked(file, snapshot, layouts=("n:1=3g.40gb,3g.40gb",))
    assert [decision["node"] for decision in decisions] == ["n", "n", ""]
    assert len({*devices(decisions[0]), *devices(decisions[1])}) == 2


def test_the_cluster_as_it_is_can_be_saved_and_asked_again(tmp_path: Path) -> None:
    file = pods(tmp_path, {GPU: 2})
    snapshot, saved = cluster(tmp_path, topology("n", PAIRS, {0: "x/a"})), tmp_path / "saved.json"
    nodes = (f"more={TOPOLOGIES / 'hgx-h100-8gpu.yaml'}",)
    asked(file, snapshot, save=saved, nodes=nodes)
    assert devices(asked(file, saved)[0]) == devices(asked(file, snapshot)[0])


def test_text_is_a_table_and_with_why_the_reasons(tmp_path: Path) -> None:
    snapshot = cluster(tmp_path, topology("n", PAIRS))
    file = pods(tmp_path, {GPU: 2}, {GPU: 5})
    arguments = ["what-if", "-f", str(file), "--snapshot", str(snapshot)]
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0
    assert "1 of 2 pods find a place." in told.output
    assert "has 4 GPUs, 5 asked (1 of the nodes)" in told.output
    assert "Nodes that fit, best first:" in CliRunner().invoke(app, [*arguments, "--why"]).output


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"nodes": ("x",)}, "--add-node x: allowed: NAME=FILE"),
        ({"nodes": ("n=x.yaml",)}, "a node of this name"),
        ({"nodes": ("m=nowhere.yaml",)}, "nowhere.yaml"),
        ({"layouts": ("n=3g.40gb",)}, "allowed: NODE:INDEX=PROFILE"),
        ({"layouts": ("m:0=3g.40gb",)}, "no GPUTopology m"),
        ({"layouts": ("n:9=3g.40gb",)}, "no GPU 9; there are 4"),
        ({"layouts": ("n:0=3g.40gb",)}, "GPU 0 is in use"),
        ({"layouts": ("n:1=9g.40gb",)}, "9g.40gb"),
        ({"layouts": ("n:1=7g.80gb,1g.10gb",)}, "7g.80gb"),
    ],
)
def test_a_change_that_cannot_be_is_refused_by_name(
    tmp_path: Path, more: dict[str, Any], complaint: str
) -> None:
    snapshot = cluster(tmp_path, topology("n", PAIRS, {0: "x/a"}))
    with pytest.raises((CommandError, TopologyError), match=complaint):
        asked(pods(tmp_path, {GPU: 1}), snapshot, **more)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("kind: Service\nmetadata: {name: x}\nspec: {}", "Service; allowed: Pod, Deployment"),
        ("- 1", "no Kubernetes object"),
        ("kind: Pod", "no Kubernetes object"),
        ("{", "not YAML"),
    ],
)
def test_a_file_without_pods_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(content)
    with pytest.raises(CommandError, match=complaint):
        asked(path, cluster(tmp_path))


@pytest.mark.parametrize("content", ["", "[]", '{"items": 1}', '{"items": [{}]}', "null"])
def test_a_snapshot_of_another_shape_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text(content)
    with pytest.raises(CommandError, match=r"--snapshot .*kubectl get"):
        asked(pods(tmp_path, {GPU: 1}), path)
