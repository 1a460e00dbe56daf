"""The plugin writes its node's GPUTopology to a real API server, with the CRD that we ship."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp2026.api.gpu_topology import Holder, parse_gpu_topology
from mcp2026.topology.affinity import affinity_graph
from mcp2026.topology.machine import Machine, machine_from_file, machine_from_topology
from tests.fakes.kubelet import FakeKubelet
from tests.fakes.nvml import FakeNvml
from tests.fakes.plugin_process import TOPOLOGIES, PluginProcess, StartPlugin, allocate, preferred
from tools.cluster import Cluster

pytest_plugins = ["tests.fakes.plugin_fixtures"]
pytestmark = pytest.mark.control_plane

REPOSITORY = Path(__file__).parents[2]
PAIRS = "4xa100-pcie-nvlink-pairs"


@pytest.fixture(scope="module")
def cluster(control_plane: Cluster) -> Cluster:
    control_plane.apply((REPOSITORY / "crds" / "gputopologies.yaml").read_text())
    control_plane.kubectl(
        "wait", "--for=condition=Established", "crd/gputopologies.mcp2026.io", "--timeout=30s"
    )
    return control_plane


@pytest.fixture
def publish(cluster: Cluster, start_plugin: StartPlugin) -> Callable[..., PluginProcess]:
    """Start a plugin that publishes the topology of `node` to the cluster."""

    def start(node: str, nvml: FakeNvml, kubeconfig: Path = cluster.kubeconfig) -> PluginProcess:
        environment = {"KUBECONFIG": str(kubeconfig)}
        return start_plugin(nvml, "--publish-topology", node=node, environment=environment)

    return start


def add_node(cluster: Cluster, name: str) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})


def topology(cluster: Cluster, name: str) -> dict[str, Any]:
    """Return the resource once it has a status."""

    def read() -> dict[str, Any] | None:
        resource = cluster.get("gputopology", name)
        return resource if resource.get("status", {}).get("gpus") else None

    found = cluster.wait_for(f"the status of GPUTopology {name}", read)
    assert found is not None
    return found


def machine_of(name: str, resource: dict[str, Any]) -> Machine:
    return machine_from_topology(name, parse_gpu_topology(resource).status)


@pytest.mark.parametrize(
    "fixture",
    [
        pytest.param(PAIRS, id="bridged pairs"),
        pytest.param("dgx-2-16xv100", id="sixteen GPUs on switches"),
        pytest.param("1xt4-edge", id="one GPU whose NUMA node is unknown"),
        pytest.param("4xgb200-nvl72-tray", id="switches without a bus id"),
    ],
)
def test_what_the_cluster_reads_is_the_machine(
    fixture: str,
    cluster: Cluster,
    kubelet: FakeKubelet,
    tmp_path: Path,
    nvml_library: Path,
    publish: Callable[..., PluginProcess],
) -> None:
    name = f"reads-{fixture}"
    add_node(cluster, name)
    plugin = publish(name, FakeNvml(tmp_path, TOPOLOGIES / f"{fixture}.yaml", library=nvml_library))

    resource = topology(cluster, name)

    expected = machine_from_file(TOPOLOGIES / f"{fixture}.yaml")
    got = machine_of(expected.name, resource)
    assert got == expected
    assert affinity_graph(got) == affinity_graph(expected)
    for gpu in resource["status"]["gpus"]:
        bandwidths = [peer["bandwidthGbPerS"] for peer in gpu["peers"]]
        assert bandwidths == sorted(bandwidths, reverse=True)
        assert "heldBy" not in gpu
    (owner,) = resource["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Node", name)
    assert owner["uid"] == cluster.get("node", name)["metadata"]["uid"]
    assert plugin.stop() == 0
    assert "Traceback" not in plugin.log


def test_health_and_holders_follow_what_happens_and_nothing_else_is_written(
    cluster: Cluster,
    kubelet: FakeKubelet,
    tmp_path: Path,
    nvml_library: Path,
    publish: Callable[..., PluginProcess],
) -> None:
    name = "follows"
    add_node(cluster, name)
    nvml = FakeNvml(tmp_path, TOPOLOGIES / f"{PAIRS}.yaml", library=nvml_library)
    publish(name, nvml)
    uuids = [gpu["uuid"] for gpu in topology(cluster, name)["status"]["gpus"]]

    def gpus() -> list[Any]:
        return list(parse_gpu_topology(cluster.get("gputopology", name)).status.gpus)

    kubelet.hold("llama-0", uuids[:2], namespace="team-a")
    cluster.wait_for("the holder", lambda: gpus()[1].held_by is not None)
    holder = Holder("team-a", "llama-0", "runtime")
    assert [gpu.held_by for gpu in gpus()] == [holder, holder, None, None]

    nvml.fail("*", 3, "NVML_ERROR_GPU_IS_LOST")
    cluster.wait_for("the unhealthy GPU", lambda: gpus()[3].health == "Unhealthy")
    assert [gpu.health for gpu in gpus()] == ["Healthy", "Healthy", "Healthy", "Unhealthy"]

    with kubelet.changed:
        kubelet.pods.clear()
    nvml.heal()
    cluster.wait_for("the recovery", lambda: gpus()[3].health == "Healthy" and gpus()[0].held_by is None)

    version = cluster.get("gputopology", name)["metadata"]["resourceVersion"]
    generation = len(nvml.calls())
    cluster.wait_for("ten more probes", lambda: len(nvml.calls()) > generation + 80)
    assert cluster.get("gputopology", name)["metadata"]["resourceVersion"] == version


def statuses(cluster: Cluster, name: str) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition."""
    status = parse_gpu_topology(cluster.get("gputopology", name)).status
    return {condition.type: (condition.status, condition.reason) for condition in status.conditions}


def patch_spec(cluster: Cluster, name: str, spec: dict[str, Any]) -> None:
    patch = json.dumps({"spec": spec})
    cluster.kubectl("patch", "gputopology", name, "--type=merge", "-p", patch)


def test_the_spec_says_how_gpus_are_shared_and_the_status_how_they_are(
    cluster: Cluster,
    kubelet: FakeKubelet,
    tmp_path: Path,
    nvml_library: Path,
    publish: Callable[..., PluginProcess],
) -> None:
    name = "shared-by-spec"
    add_node(cluster, name)
    plugin = publish(name, FakeNvml(tmp_path, TOPOLOGIES / f"{PAIRS}.yaml", library=nvml_library))
    uuids = [gpu["uuid"] for gpu in topology(cluster, name)["status"]["gpus"]]
    cluster.wait_for("conditions", lambda: {each for each, _ in statuses(cluster, name).values()} == {"True"})

    patch_spec(cluster, name, {"gpus": [{"index": 1, "sharing": {"mode": "TimeSlice", "replicas": 2}}]})
    kubelet.wait(
        lambda: any(
            each.request.resource_name == "mcp2026.io/gpu-shared"
            and each.lists
            and list(each.lists[-1]) == [f"{uuids[1]}::0", f"{uuids[1]}::1"]
            for each in kubelet.endpoints
        ),
        "shares of the second GPU",
    )

    def read() -> Any:
        return parse_gpu_topology(cluster.get("gputopology", name))

    cluster.wait_for("the status", lambda: read().status.gpus[1].sharing.mode == "TimeSlice")
    found = read()
    assert found.status.observed_generation == found.generation
    assert found.status.gpus[1].sharing.replicas == 2
    assert statuses(cluster, name)["SharingApplied"] == ("True", "AsWanted")

    patch_spec(cluster, name, {"gpus": [{"index": 7, "sharing": {}}]})
    cluster.wait_for("the refusal", lambda: statuses(cluster, name)["SharingApplied"] == ("False", "Refused"))
    refused = read()
    assert refused.status.gpus[1].sharing.mode == "TimeSlice", "the last good spec holds"
    assert refused.status.observed_generation == refused.generation - 1
    (message,) = [each.message for each in refused.status.conditions if each.type == "SharingApplied"]
    assert "spec.gpus[0].index: 7 is no GPU of this node; allowed: 0, 1, 2, 3" in message
    assert refused.spec.gpus[0].index == 7, "the plugin never writes the spec"

    patch_spec(cluster, name, {"gpus": []})
    cluster.wait_for("whole GPUs", lambda: statuses(cluster, name)["SharingApplied"] == ("True", "AsWanted"))
    columns = cluster.kubectl("get", "gputopology", name)
    header, row = columns.splitlines()
    assert header.split()[:6] == ["NAME", "PRODUCT", "GPUS", "FREE", "UNHEALTHY", "MEMORY"]
    assert row.split()[-7:-3] == ["4", "4", "0", str(4 * read().status.gpus[0].memory_mi_b)]
    assert plugin.stop() == 0
    assert "Traceback" not in plugin.log


def reserve(cluster: Cluster, node: str, pod: str, assignment: dict[str, list[str]]) -> None:
    """Bind a pod of `node` with devices reserved for its container, as the extender does."""
    value = json.dumps({"runtime": assignment})
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod, "annotations": {"mcp2026.io/gpu-assignment": value}},
            "spec": {"nodeName": node, "containers": [{"name": "runtime", "image": "none"}]},
        }
    )


def test_what_was_reserved_is_preferred_and_what_diverges_is_told(
    cluster: Cluster,
    kubelet: FakeKubelet,
    tmp_path: Path,
    nvml_library: Path,
    publish: Callable[..., PluginProcess],
) -> None:
    name = "reserves"
    add_node(cluster, name)
    plugin = publish(name, FakeNvml(tmp_path, TOPOLOGIES / f"{PAIRS}.yaml", library=nvml_library))
    uuids = [gpu["uuid"] for gpu in topology(cluster, name)["status"]["gpus"]]
    endpoint = kubelet.endpoint()
    assert preferred(endpoint, uuids, 2) == uuids[:2]

    reserve(cluster, name, "kept", {"mcp2026.io/gpu": [uuids[1], uuids[2]]})
    cluster.wait_for("the reservation", lambda: preferred(endpoint, uuids, 2) == uuids[1:3])
    assert preferred(endpoint, [uuids[0], uuids[1], uuids[3]], 2) == [uuids[0], uuids[3]]
    allocate(endpoint, uuids[1:3])
    kubelet.hold("kept", uuids[1:3])
    cluster.wait_for(
        "the holder",
        lambda: topology(cluster, name)["status"]["gpus"][1].get("heldBy", {}).get("pod") == "kept",
    )
    assert statuses(cluster, name)["Reserved"] == ("True", "AsReserved")

    reserve(cluster, name, "crossed", {"mcp2026.io/gpu": [uuids[0]]})
    kubelet.hold("crossed", [uuids[3]])
    cluster.wait_for("the condition", lambda: statuses(cluster, name)["Reserved"] == ("False", "Diverged"))

    def told() -> Any:
        events = cluster.get("events")["items"]
        return [each for each in events if each["reason"] == "GpuAssignmentDiverged"]

    cluster.wait_for("the event", told)
    (event,) = told()
    assert event["involvedObject"]["name"] == "crossed"
    assert f"holds {uuids[3]} of mcp2026.io/gpu, reserved were {uuids[0]}" in event["message"]
    assert plugin.log.count("reserved were") == 1

    cluster.kubectl("delete", "pod", "kept", "crossed", "--force", "--grace-period=0")
    with kubelet.changed:
        kubelet.pods.clear()
    cluster.wait_for("peace", lambda: statuses(cluster, name)["Reserved"] == ("True", "AsReserved"))
    assert "Traceback" not in plugin.log


def test_without_a_pod_resources_socket_the_rest_is_published_and_it_says_so(
    kubelet_root: Path,
    cluster: Cluster,
    tmp_path: Path,
    nvml_library: Path,
    publish: Callable[..., PluginProcess],
) -> None:
    name = "no-pod-resources"
    add_node(cluster, name)
    kubelet = FakeKubelet(kubelet_root)
    kubelet.start(with_pod_resources=False)
    try:
        plugin = publish(name, FakeNvml(tmp_path, TOPOLOGIES / f"{PAIRS}.yaml", library=nvml_library))
        assert len(topology(cluster, name)["status"]["gpus"]) == 4
        assert plugin.log.count("no pod-resources socket") == 1
        assert "hostPath" in plugin.log
    finally:
        kubelet.stop()


def test_without_an_api_server_the_kubelet_is_served_all_the_same(
    cluster: Cluster,
    kubelet_root: Path,
    kubelet: FakeKubelet,
    tmp_path: Path,
    nvml_library: Path,
    publish: Callable[..., PluginProcess],
) -> None:
    name = "unreachable"
    add_node(cluster, name)
    kubeconfig = kubelet_root / "kubeconfig"
    real = cluster.kubeconfig.read_text()
    kubeconfig.write_text(real.replace(cluster.api_url, "https://127.0.0.1:1"))
    assert kubeconfig.read_text() != real
    plugin = publish(
        name, FakeNvml(tmp_path, TOPOLOGIES / f"{PAIRS}.yaml", library=nvml_library), kubeconfig=kubeconfig
    )
    assert len(kubelet.endpoint().lists[0]) == 4
    cluster.wait_for("a failed write", lambda: "the API server cannot be reached" in plugin.log)

    shutil.copy(cluster.kubeconfig, kubeconfig)
    assert len(topology(cluster, name)["status"]["gpus"]) == 4
    assert len(kubelet.endpoints) == 1


def test_a_node_that_does_not_exist_is_named(
    cluster: Cluster,
    kubelet: FakeKubelet,
    tmp_path: Path,
    nvml_library: Path,
    publish: Callable[..., PluginProcess],
) -> None:
    plugin = publish("no-such-node", FakeNvml(tmp_path, TOPOLOGIES / "1xt4-edge.yaml", library=nvml_library))
    cluster.wait_for("the advice", lambda: "check that --node-name no-such-node is this node" in plugin.log)
    assert plugin.process.poll() is None
