"""`mcp2026 what-if`: where pods would go, in a cluster from a file that is changed as asked."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mcp2026.api.names import GANG_ANNOTATION, GANG_SIZE_ANNOTATION, MODEL_LABEL, SLO_LATENCY_ANNOTATION
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
    wishes = {"save": None, "nodes": (), "layouts": (), "config": None, "why": False} | more
    decisions: list[dict[str, Any]] = json.loads(what_if([file], snapshot, as_json=True, **wishes))
    return decisions


def devices(decision: dict[str, Any]) -> list[str]:
    return [device for each in decision["reserved"].values() for those in each.values() for device in those]


GPU = "mcp2026.io/gpu"
OF_GPUS = (
    "kind: Pod\nmetadata: {{name: x}}\n"
    "spec: {{containers: [{{name: c, resources: {{limits: {{mcp2026.io/gpu: {}}}}}}}]}}"
)
OF_REPLICAS = "kind: Deployment\nmetadata: {{name: x}}\nspec: {{replicas: {}, template: {{spec: {{}}}}}}"


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
        ({"nodes": ("N_1=x.yaml",)}, "N_1 names no node; allowed: at most 253"),
        ({"layouts": ("n:9=3g.40gb",)}, "no GPU 9; allowed: 0, 1, 2, 3"),
        ({"layouts": ("n:1=3g.40gb,",)}, "allowed: NODE:INDEX=PROFILE"),
        ({"layouts": ("n:0=3g.40gb",)}, "GPU 0 is in use"),
        (
            {"layouts": ("n:1=9g.40gb",)},
            "--mig-layout n:1=9g.40gb: .*9g.40gb: not one of this GPU; allowed: ",
        ),
        ({"layouts": ("n:1=7g.80gb,1g.10gb",)}, "--mig-layout .*8 compute slices; allowed: at most 7"),
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
        ("kind: Service\nmetadata: {name: x}\nspec: {}", "kind: 'Service'; allowed: Pod, Deployment"),
        ("- 1", "kind: is missing; allowed: Pod"),
        ("kind: Pod", r"Pod.metadata: is required"),
        ("{", "not YAML"),
        ("", "no pods; allowed: Pod, Deployment"),
        ("kind: Pod\nmetadata: {name: x}\nspec: {containers: 3}", r"pod default/x.spec.containers: 3"),
        (OF_GPUS.format("1.5"), "gpu: 1.5 is no amount of devices"),
        (OF_GPUS.format("many"), "gpu: 'many' is no amount of devices"),
        (OF_REPLICAS.format("two"), "Deployment.spec.replicas: 'two' is not allowed; allowed: an integer"),
        (OF_REPLICAS.format(10**9), "Deployment.spec.replicas: 1000000000 is out of range"),
    ],
)
def test_a_file_without_pods_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(content)
    with pytest.raises(CommandError, match=complaint):
        asked(path, cluster(tmp_path))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not JSON"),
        (b"[]", "no list `items`"),
        (b'{"items": 1}', "no list `items`"),
        (b'{"items": [{}]}', r"items\[0\] has no kind and metadata.name"),
        (b'{"items": [{"kind": "Node", "metadata": "x"}]}', r"items\[0\] has no kind and metadata.name"),
        (b"null", "no list `items`"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"items": "\xff"}', "invalid start byte in utf-8 at byte 11"),
    ],
)
def test_a_snapshot_of_another_shape_is_refused_in_one_line(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "snapshot.json"
    path.write_bytes(content)
    with pytest.raises(
        CommandError, match=rf"--snapshot .*: {problem}.*; allowed: what `kubectl get"
    ) as refused:
        asked(pods(tmp_path, {GPU: 1}), path, nodes=("m=x.yaml",))
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_files_that_windows_wrote_are_read(tmp_path: Path, encoding: str) -> None:
    snapshot, file = cluster(tmp_path, topology("n", PAIRS)), pods(tmp_path, {GPU: 2})
    for path in (snapshot, file):
        path.write_bytes(path.read_text().encode(encoding))
    assert asked(file, snapshot)[0]["node"] == "n"


@pytest.mark.parametrize(
    ("kind", "change", "complaint"),
    [
        ("Pod", {"spec": 3}, r"of the cluster, pods default/a: not the shape .*\$.spec"),
        ("Node", {"metadata": {"name": "n", "labels": 3}}, r"of the cluster, nodes n: .*\$.metadata.labels"),
    ],
)
def test_an_object_of_the_cluster_that_cannot_be_read_is_named(
    tmp_path: Path, kind: str, change: dict[str, Any], complaint: str
) -> None:
    snapshot = cluster(tmp_path, topology("n", PAIRS), bound=(pod("a", 1, "n"),))
    document = json.loads(snapshot.read_text())
    next(each for each in document["items"] if each["kind"] == kind).update(change)
    snapshot.write_text(json.dumps(document))
    with pytest.raises(CommandError, match=complaint):
        asked(pods(tmp_path, {GPU: 1}), snapshot)


def test_a_gpu_of_a_topology_that_cannot_be_read_cannot_be_cut(tmp_path: Path) -> None:
    document = topology("n", PAIRS)
    document["status"]["gpus"] = "x"
    snapshot = cluster(tmp_path, document)
    with pytest.raises(CommandError, match=r"--mig-layout n:0=3g.40gb: .*status.gpus: 'x' is not allowed"):
        asked(pods(tmp_path, {GPU: 1}), snapshot, layouts=("n:0=3g.40gb",))


# ---- the policy ----


def marked(folder: Path, count: int, gpus: int, **metadata: dict[str, str]) -> Path:
    """A file with so many pods of a gang or a model, as `metadata` has it."""
    path = folder / "marked.yaml"
    spec = {"containers": [{"name": "main", "resources": {"limits": {GPU: gpus}}}]}
    documents = [
        {"kind": "Pod", "metadata": {"name": f"m{n}", **metadata}, "spec": spec} for n in range(count)
    ]
    path.write_text("\n---\n".join(map(json.dumps, documents)))
    return path


TWO_NODES = (topology("a", "hgx-h100-8gpu"), topology("b", PAIRS))
PROMISE = {SLO_LATENCY_ANNOTATION: "25"}
POLICY = """
latency:
  - {model: resnet50, product: NVIDIA H100 80GB HBM3, p95Ms: 14}
  - {model: resnet50, product: NVIDIA A100 80GB PCIe, p95Ms: 40}
"""


def test_pods_go_where_the_policy_of_a_file_puts_them(tmp_path: Path) -> None:
    """The pod's own labels and annotations count too: its model, and what it was promised."""
    snapshot = cluster(tmp_path, *TWO_NODES)
    file = marked(tmp_path, 1, 1, labels={MODEL_LABEL: "resnet50"}, annotations=PROMISE)
    config = tmp_path / "policy.yaml"
    config.write_text(POLICY)
    assert asked(file, snapshot)[0]["node"] == "b"
    assert asked(file, snapshot, config=config)[0]["node"] == "a"
    config.write_text("\ufeff" + POLICY, encoding="utf-8")
    assert asked(file, snapshot, config=config)[0]["node"] == "a", "with a byte order mark"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("packing: Full", "configuration.packing: 'Full' is not allowed; allowed: Pack or Spread"),
        ("a: 2026-13-45", "not YAML"),
        (None, "cannot be read"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_by_file_and_field(
    tmp_path: Path, content: str | None, complaint: str
) -> None:
    config = tmp_path / "policy.yaml"
    if content is not None:
        config.write_text(content)
    arguments = ["--snapshot", str(cluster(tmp_path, *TWO_NODES)), "--config", str(config)]
    with pytest.raises(CommandError, match=rf"--config .*policy.yaml: {complaint}"):
        CliRunner().invoke(
            app, ["what-if", "-f", str(pods(tmp_path, {GPU: 1})), *arguments], catch_exceptions=False
        )


def test_a_gang_goes_whole_or_not_at_all(tmp_path: Path) -> None:
    snapshot = cluster(tmp_path, *TWO_NODES)
    gang = {GANG_ANNOTATION: "t", GANG_SIZE_ANNOTATION: "3"}
    fits = asked(marked(tmp_path, 3, 4, annotations=gang), snapshot)
    assert sorted(decision["node"] for decision in fits) == ["a", "a", "b"]
    too_large = asked(marked(tmp_path, 3, 8, annotations=gang), snapshot)
    assert [decision["node"] for decision in too_large] == ["", "", ""]
    assert "gang t: 1 of 3 pods" in json.dumps(too_large[0]["refused"])
