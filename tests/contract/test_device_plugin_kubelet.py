"""A real kubelet takes the plugin's GPUs, allocates the linked pair, and tells who holds it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp2026.api.gpu_topology import Holder, parse_gpu_topology
from tests.fakes.nvml import FakeNvml
from tests.fakes.plugin_process import PAIRS, TOPOLOGIES, PluginProcess
from tools.cluster import Cluster
from tools.cluster.images import build_image
from tools.cluster.node import load_image
from tools.cluster.processes import end, start

pytest_plugins = ["tests.fakes.plugin_fixtures"]
pytestmark = pytest.mark.node

REPOSITORY = Path(__file__).parents[2]
HELLO = REPOSITORY / "tests" / "e2e" / "images" / "hello"
IMAGE = "localhost/hello:gpu"
RESOURCE = "mcp2026.io/gpu"
KUBELET_DIRECTORY = Path("/var/lib/kubelet")


@pytest.fixture(scope="module")
def cluster(node_cluster: Cluster) -> Cluster:
    node_cluster.apply((REPOSITORY / "crds" / "gputopologies.yaml").read_text())
    node_cluster.kubectl(
        "wait", "--for=condition=Established", "crd/gputopologies.mcp2026.io", "--timeout=30s"
    )
    load_image(node_cluster, build_image(HELLO / "Containerfile", HELLO, IMAGE, {"GREETING": "hello"}))
    return node_cluster


@pytest.fixture(scope="module")
def node_name(cluster: Cluster) -> str:
    (node,) = cluster.get("nodes")["items"]
    return str(node["metadata"]["name"])


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory, nvml_library: Path) -> FakeNvml:
    source = TOPOLOGIES / "4xa100-pcie-nvlink-pairs.yaml"
    return FakeNvml(tmp_path_factory.mktemp("driver"), source, library=nvml_library)


@pytest.fixture(scope="module")
def plugin(
    cluster: Cluster, node_name: str, driver: FakeNvml, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PluginProcess]:
    environment = driver.environment | {"NODE_NAME": node_name, "KUBECONFIG": str(cluster.kubeconfig)}
    flags = [
        f"--kubelet-directory={KUBELET_DIRECTORY}",
        "--socket-prefix=mcp2026-test-",
        "--health-interval=0.5",
        "--holders-interval=0.5",
    ]
    folder = tmp_path_factory.mktemp("plugin")
    configuration = folder / "configuration.yaml"
    configuration.write_text("health: {recoverAfterSeconds: 0.5, taintEffect: None}\n")
    flags += [
        f"--config={configuration}",
        f"--cdi-directory={folder / 'cdi'}",
        f"--mps-directory={folder / 'mps'}",
    ]
    process = PluginProcess(folder, environment, flags)
    yield process
    status = process.stop()
    assert status == 0, process.log


def allocatable(cluster: Cluster, node_name: str) -> str | None:
    amount: str | None = cluster.get("node", node_name)["status"]["allocatable"].get(RESOURCE)
    return amount


def gpus(cluster: Cluster, node_name: str) -> tuple[Any, ...]:
    return parse_gpu_topology(cluster.get("gputopology", node_name)).status.gpus


def run_pod(cluster: Cluster, name: str, count: int) -> list[str]:
    """Run a pod with `count` GPUs and return the UUIDs that its container was told."""
    container = {
        "name": "hello",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "resources": {"limits": {RESOURCE: str(count)}},
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    cluster.wait(f"pod/{name}", "condition=Ready")
    told = cluster.kubectl("exec", name, "--", "printenv", "MCP2026_GPU_UUIDS", "NVIDIA_VISIBLE_DEVICES")
    mine, nvidias = told.split()
    assert mine == nvidias
    return mine.split(",")


def test_pods_get_linked_pairs_and_the_cluster_sees_who_holds_them(
    cluster: Cluster, node_name: str, plugin: PluginProcess, driver: FakeNvml
) -> None:
    cluster.wait_for("four GPUs", lambda: allocatable(cluster, node_name) == "4")

    single = run_pod(cluster, "single", 1)
    pair = run_pod(cluster, "pair", 2)
    assert pair == (PAIRS[2:] if single[0] in PAIRS[:2] else PAIRS[:2])

    cluster.wait_for(
        "three holders", lambda: sum(gpu.held_by is not None for gpu in gpus(cluster, node_name)) == 3
    )
    holders = {gpu.uuid: gpu.held_by for gpu in gpus(cluster, node_name)}
    assert holders[single[0]] == Holder("default", "single", "hello")
    assert {holders[uuid] for uuid in pair} == {Holder("default", "pair", "hello")}

    cluster.kubectl("delete", "pod", "single", "pair", "--wait=true")
    cluster.wait_for("no holders", lambda: all(gpu.held_by is None for gpu in gpus(cluster, node_name)))


def test_a_lost_gpu_lowers_what_the_node_offers_until_it_comes_back(
    cluster: Cluster, node_name: str, plugin: PluginProcess, driver: FakeNvml
) -> None:
    cluster.wait_for("four GPUs", lambda: allocatable(cluster, node_name) == "4")
    driver.fail("*", 0, "NVML_ERROR_GPU_IS_LOST")
    cluster.wait_for("three GPUs", lambda: allocatable(cluster, node_name) == "3")
    assert gpus(cluster, node_name)[0].health == "Unhealthy"
    driver.heal()
    cluster.wait_for("four GPUs again", lambda: allocatable(cluster, node_name) == "4")


RESTARTS = 20


def restart_kubelet(cluster: Cluster) -> None:
    """Kill the kubelet and start it again with the same arguments."""
    record = cluster.record
    (program,) = [program for program in record.programs if program.program == "kubelet"]
    command = Path(f"/proc/{program.identity.pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    end([program.identity])
    record.programs.remove(program)
    start(record, "kubelet", command)


def churn_pod(name: str, count: int) -> dict[str, Any]:
    container = {
        "name": "hello",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "resources": {"limits": {RESOURCE: str(count)}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"churn": "true"}},
        # Not 0: the API server would forget a deleted pod before the kubelet has let go of its GPUs.
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, "restartPolicy": "Never"},
    }


def held_gpus(cluster: Cluster, pod: str) -> list[str]:
    """Return the GPUs that the container of `pod` was told, read from inside it."""
    return cluster.kubectl("exec", pod, "--", "printenv", "MCP2026_GPU_UUIDS").strip().split(",")


def test_a_kubelet_that_restarts_under_churn_refuses_no_pod_and_gives_no_gpu_twice(
    cluster: Cluster, node_name: str, plugin: PluginProcess, driver: FakeNvml
) -> None:
    cluster.wait_for("four GPUs", lambda: allocatable(cluster, node_name) == "4")
    cluster.apply(churn_pod("stays", 1))
    cluster.wait("pod/stays", "condition=Ready")
    stays = held_gpus(cluster, "stays")
    refused: list[str] = []
    for turn in range(RESTARTS):
        name = f"churn-{turn}"
        # One pod waits for a GPU while the kubelet is away, one goes away meanwhile.
        cluster.apply(churn_pod(name, 1 + turn % 3))
        restart_kubelet(cluster)
        if turn:
            cluster.kubectl("delete", "pod", f"churn-{turn - 1}", "--wait=false")

        def settled(name: str = name) -> bool:
            phase = cluster.get("pod", name)["status"].get("phase")
            return phase in ("Running", "Failed")

        cluster.wait_for(f"{name} to run", settled)
        status = cluster.get("pod", name)["status"]
        if status["phase"] == "Failed":
            refused.append(f"{name}: {status.get('reason')} {status.get('message')}")
            continue
        given = held_gpus(cluster, name)
        assert len(given) == 1 + turn % 3
        assert not set(given) & set(stays), f"turn {turn}: a GPU of a running pod was given away again"
    assert refused == []
    assert cluster.get("pod", "stays")["status"]["containerStatuses"][0]["restartCount"] == 0
    assert held_gpus(cluster, "stays") == stays
    registrations = plugin.log.count(f"registered {RESOURCE} with the kubelet")
    assert RESTARTS <= registrations <= RESTARTS + 1, plugin.log
    cluster.kubectl("delete", "pod", "-l", "churn=true", "--wait=true")
    resident_kib = next(
        int(line.split()[1])
        for line in Path(f"/proc/{plugin.process.pid}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )
    assert resident_kib < 80 * 1024
