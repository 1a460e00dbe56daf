"""A real kubelet and GPUs that are shared, changed under running pods, and fail: read from inside containers.

The plugin runs beside the kubelet on a fake of the driver, with a fake of NVIDIA's MPS daemon.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp2026.api.gpu_topology import GpuStatus, parse_gpu_topology
from mcp2026.api.names import DEVICE_UNHEALTHY_TAINT
from tests.fakes.mps import FakeMps, running_mps
from tests.fakes.nvml import FakeNvml
from tests.fakes.plugin_process import PAIRS, TOPOLOGIES, PluginProcess
from tools.cluster import Cluster
from tools.cluster.images import build_image
from tools.cluster.node import load_image

pytest_plugins = ["tests.fakes.plugin_fixtures"]
pytestmark = pytest.mark.node

REPOSITORY = Path(__file__).parents[2]
HELLO = REPOSITORY / "tests" / "e2e" / "images" / "hello"
IMAGE = "localhost/hello:gpu"
KUBELET_DIRECTORY = Path("/var/lib/kubelet")
GPU, SHARED, MEMORY = "mcp2026.io/gpu", "mcp2026.io/gpu-shared", "mcp2026.io/gpu-memory"
MIG_3G = "mcp2026.io/mig-3g.40gb"


class Node:
    """The one node of a cluster, as a test sees and changes it."""

    def __init__(self, cluster: Cluster, driver: FakeNvml) -> None:
        self.cluster = cluster
        self.driver = driver
        (node,) = cluster.get("nodes")["items"]
        self.name = str(node["metadata"]["name"])

    def offers(self, **amounts: int) -> bool:
        """Whether the kubelet offers these amounts: by the resources' last parts, with _ for -."""
        allocatable = self.cluster.get("node", self.name)["status"]["allocatable"]
        wanted = {
            GPU: amounts.get("gpu"),
            SHARED: amounts.get("gpu_shared"),
            MEMORY: amounts.get("gpu_memory"),
            MIG_3G: amounts.get("mig_3g"),
        }
        return all(
            int(allocatable.get(resource, "0")) == amount
            for resource, amount in wanted.items()
            if amount is not None
        )

    def wait_until_it_offers(self, **amounts: int) -> None:
        self.cluster.wait_for(f"the node to offer {amounts}", lambda: self.offers(**amounts))

    def gpu(self, index: int) -> GpuStatus:
        return parse_gpu_topology(self.cluster.get("gputopology", self.name)).status.gpus[index]

    def draining(self, index: int) -> str:
        """What a change of the GPU waits for; empty if it does not."""
        sharing = self.gpu(index).sharing
        return sharing.message if sharing.state == "Draining" else ""

    def taints(self) -> list[dict[str, Any]]:
        found = self.cluster.get("node", self.name)["spec"].get("taints", [])
        return [taint for taint in found if taint["key"] == DEVICE_UNHEALTHY_TAINT]

    def share(self, **gpus: dict[str, Any] | None) -> None:
        """Say how single GPUs, gpu0 to gpu3, shall be shared; those that are not named are whole."""
        entries = [
            {"index": int(name.removeprefix("gpu")), "sharing": sharing} for name, sharing in gpus.items()
        ]
        patch = json.dumps({"spec": {"gpus": entries}})
        self.cluster.kubectl("patch", "gputopology", self.name, "--type=merge", "-p", patch)

    def start_pod(self, name: str, resource: str, amount: int) -> None:
        container = {
            "name": "hello",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "resources": {"limits": {resource: str(amount)}},
        }
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
        self.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})

    def run_pod(self, name: str, resource: str, amount: int) -> dict[str, str]:
        """Start a pod and return the environment of its container, once it is ready."""
        self.start_pod(name, resource, amount)
        self.cluster.wait(f"pod/{name}", "condition=Ready")
        return self.environment(name)

    def environment(self, pod: str) -> dict[str, str]:
        lines = self.cluster.kubectl("exec", pod, "--", "env").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def end_pods(self, *names: str) -> None:
        self.cluster.kubectl("delete", "pod", *names, "--wait=true", "--ignore-not-found")


@pytest.fixture(scope="module")
def node(node_cluster: Cluster, nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Node:
    node_cluster.apply((REPOSITORY / "crds" / "gputopologies.yaml").read_text())
    node_cluster.wait("crd/gputopologies.mcp2026.io", "condition=Established")
    load_image(node_cluster, build_image(HELLO / "Containerfile", HELLO, IMAGE, {"GREETING": "hello"}))
    machine = TOPOLOGIES / "4xa100-pcie-nvlink-pairs.yaml"
    driver = FakeNvml(tmp_path_factory.mktemp("driver"), machine, library=nvml_library)
    return Node(node_cluster, driver)


@pytest.fixture(scope="module")
def mps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeMps]:
    with running_mps(tmp_path_factory.mktemp("mps-program")) as fake:
        yield fake


@pytest.fixture(scope="module", autouse=True)
def plugin(node: Node, mps: FakeMps, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginProcess]:
    folder = tmp_path_factory.mktemp("plugin")
    configuration = folder / "configuration.yaml"
    configuration.write_text("health: {recoverAfterSeconds: 1}\n")
    environment = {
        **node.driver.environment,
        **mps.environment,
        "NODE_NAME": node.name,
        "KUBECONFIG": str(node.cluster.kubeconfig),
        "PATH": f"{mps.program.parent}:{os.environ['PATH']}",
    }
    flags = [
        f"--kubelet-directory={KUBELET_DIRECTORY}",
        "--socket-prefix=mcp2026-sharing-",
        "--health-interval=0.5",
        "--holders-interval=0.5",
        f"--config={configuration}",
        f"--cdi-directory={folder / 'cdi'}",
        f"--mps-directory={folder / 'mps'}",
    ]
    process = PluginProcess(folder, environment, flags)
    node.wait_until_it_offers(gpu=4)
    yield process
    node.end_pods("--all")
    status = process.stop()
    assert status == 0, process.log


@pytest.fixture(autouse=True)
def whole_again(node: Node) -> Iterator[None]:
    yield
    node.end_pods("--all")
    node.driver.heal()
    node.share()
    node.wait_until_it_offers(gpu=4)


def test_containers_in_turns_get_shares_of_one_gpu(node: Node) -> None:
    node.share(gpu0={"mode": "TimeSlice", "replicas": 3})
    node.wait_until_it_offers(gpu=3, gpu_shared=3)
    told = [node.run_pod(f"turn-{number}", SHARED, 1) for number in range(3)]
    assert {each["NVIDIA_VISIBLE_DEVICES"] for each in told} == {PAIRS[0]}
    assert not any(name.startswith("CUDA_MPS") for each in told for name in each)
    node.cluster.wait_for("three holders", lambda: len(node.gpu(0).allocations) == 3)
    pair = node.run_pod("pair", GPU, 2)
    assert pair["MCP2026_GPU_UUIDS"] == ",".join(PAIRS[2:]), "the pair that is still whole"


def test_containers_through_mps_get_their_part_of_memory_and_threads(node: Node, mps: FakeMps) -> None:
    node.share(gpu1={"mode": "MPS", "unit": "Memory"})
    node.wait_until_it_offers(gpu=3, gpu_memory=80)
    assert len(mps.processes()) == 1
    told = node.run_pod("quarter", MEMORY, 20)
    assert told["NVIDIA_VISIBLE_DEVICES"] == PAIRS[1]
    assert told["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert told["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=20480M"
    pipes = node.cluster.kubectl("exec", "quarter", "--", "ls", told["CUDA_MPS_PIPE_DIRECTORY"])
    assert "control" in pipes
    node.cluster.wait_for("its holder", lambda: [held.units for held in node.gpu(1).allocations] == [20])


def test_a_gpu_goes_from_whole_to_slices_and_back_without_touching_a_pod(node: Node) -> None:
    node.share(gpu2={"mode": "MIG", "migLayout": ["3g.40gb", "3g.40gb"]})
    node.wait_until_it_offers(gpu=3, mig_3g=2)
    told = [node.run_pod(f"slice-{number}", MIG_3G, 1) for number in range(2)]
    slices = {each["CUDA_VISIBLE_DEVICES"] for each in told}
    assert slices == set(node.driver.mig_uuids(2))
    assert len(slices) == 2

    node.end_pods("slice-1")
    node.share()
    draining = node.cluster.wait_for("the change to wait", lambda: node.draining(2))
    assert "slice-0" in draining
    assert node.environment("slice-0") == told[0]
    assert node.cluster.get("pod", "slice-0")["status"]["containerStatuses"][0]["restartCount"] == 0

    node.end_pods("slice-0")
    node.wait_until_it_offers(gpu=4, mig_3g=0)
    assert node.driver.mig_mode(2) == (0, 0)


def test_a_gpu_that_falls_off_the_bus_taints_the_node_until_it_is_back(node: Node) -> None:
    before = node.run_pod("before", GPU, 1)
    node.driver.lose(3)
    node.driver.emit_xid(3, 79)
    node.wait_until_it_offers(gpu=3)
    (taint,) = node.cluster.wait_for("the taint", node.taints)
    assert taint["effect"] == "NoSchedule"
    gpu = node.gpu(3)
    assert gpu.health == "Unhealthy"
    assert gpu.health_reason
    assert gpu.health_message

    node.start_pod("after", GPU, 1)

    def refused() -> bool:
        conditions = node.cluster.get("pod", "after")["status"].get("conditions", [])
        return any("untolerated taint" in condition.get("message", "") for condition in conditions)

    node.cluster.wait_for("the new pod to wait because of the taint", refused)
    assert node.environment("before") == before

    node.driver.recover(3)
    node.cluster.wait("pod/after", "condition=Ready")
    assert node.taints() == []
    assert node.gpu(3).health == "Healthy"


def test_a_layout_that_cannot_be_changes_nothing_and_says_why(node: Node) -> None:
    node.share(gpu2={"mode": "MIG", "migLayout": ["7g.80gb", "1g.10gb"]})
    told = node.cluster.wait_for("the refusal", lambda: node.gpu(2).sharing.message)
    assert "7g.80gb" in told
    assert node.driver.mig_mode(2) in (None, (0, 0))
