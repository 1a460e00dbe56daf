"""The plugin as a process: GPUs change how they are shared; driver, daemon and kubelet are played."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp2026.device_plugin.kubelet import deviceplugin_pb2 as contract
from mcp2026.device_plugin.kubelet import podresources_pb2 as pod_resources
from tests.fakes.kubelet import Endpoint, FakeKubelet
from tests.fakes.mps import FakeMps, running_mps
from tests.fakes.nvml import FakeNvml
from tests.fakes.plugin_process import PAIRS, PluginProcess, StartPlugin, allocate

pytest_plugins = ["tests.fakes.plugin_fixtures"]

GPU = PAIRS[0]
WHOLE, SHARED = "mcp2026.io/gpu", "mcp2026.io/gpu-shared"


@pytest.fixture
def mps(kubelet_root: Path) -> Iterator[FakeMps]:
    with running_mps(kubelet_root / "bin") as fake:
        yield fake


class Node:
    """The plugin with a configuration file that changes while it runs; it is about the first GPU."""

    def __init__(self, kubelet: FakeKubelet, nvml: FakeNvml, start: StartPlugin, mps: FakeMps) -> None:
        self.kubelet = kubelet
        self.nvml = nvml
        self._start = start
        self._mps = mps
        self._configuration = kubelet.directory.parent / "sharing.yaml"
        self.share("{mode: Exclusive}")

    def share(self, sharing: str) -> None:
        draft = self._configuration.with_suffix(".new")
        draft.write_text(f"gpus: [{{index: 0, sharing: {sharing}}}]\n")
        draft.replace(self._configuration)

    def start(self) -> PluginProcess:
        path = f"{self._mps.program.parent}:{os.environ['PATH']}"
        environment = self._mps.environment | {"PATH": path}
        return self._start(self.nvml, f"--config={self._configuration}", environment=environment)

    def endpoint(self, resource: str) -> Endpoint:
        """Return the latest registration of `resource` whose stream is open."""

        def open_one() -> Endpoint | None:
            found = [one for one in self.kubelet.endpoints if one.request.resource_name == resource]
            return found[-1] if found and found[-1].lists and not found[-1].ended else None

        endpoint: Endpoint = self.kubelet.wait(open_one, f"{resource} is served")
        return endpoint

    def devices(self, resource: str) -> dict[str, contract.Device]:
        """Return what the kubelet has of the first GPU."""
        found = [one for one in self.kubelet.endpoints if one.request.resource_name == resource]
        if not found or not found[-1].lists or found[-1].ended:
            return {}
        others = set(PAIRS[1:])
        return {name: device for name, device in found[-1].lists[-1].items() if name not in others}

    def has(self, resource: str, number: int) -> None:
        self.kubelet.wait(lambda: len(self.devices(resource)) == number, f"{number} of {resource}")

    def hold(self, pod: str, resource: str, *devices: str) -> None:
        held = pod_resources.ContainerDevices(resource_name=resource, device_ids=devices)
        container = pod_resources.ContainerResources(name="c", devices=[held])
        with self.kubelet.changed:
            self.kubelet.pods.append(
                pod_resources.PodResources(name=pod, namespace="ns", containers=[container])
            )
            asked = self.kubelet.answered_lists
        # Who asks a second time has taken the first answer.
        self.kubelet.wait(lambda: self.kubelet.answered_lists >= asked + 2, "the plugin to know the holder")

    def end_pods(self) -> None:
        with self.kubelet.changed:
            self.kubelet.pods.clear()


@pytest.fixture
def node(kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin, mps: FakeMps) -> Node:
    return Node(kubelet, nvml, start_plugin, mps)


def compute_mode(nvml: FakeNvml) -> str:
    """Return NVML's number of the first GPU's compute mode: 0 is the default, 3 is exclusive process."""
    lines = (line.split() for line in nvml.state.read_text().splitlines())
    return next(words[2] for words in lines if words[:2] == ["compute_mode", "0"])


def test_from_exclusive_to_mig_and_back_around_a_pod(node: Node) -> None:
    plugin = node.start()
    node.has(WHOLE, 1)
    node.hold("trainer", WHOLE, GPU)
    node.share("{mode: MIG, migLayout: [3g.40gb, 1g.10gb]}")
    plugin.wait_for_log("waits for 1 pod: ns/trainer")
    assert node.nvml.mig_uuids(0) == []
    node.has(WHOLE, 1)

    node.end_pods()
    node.has("mcp2026.io/mig-3g.40gb", 1)
    node.has("mcp2026.io/mig-1g.10gb", 1)
    assert not node.devices(WHOLE)
    [small] = node.devices("mcp2026.io/mig-1g.10gb")
    [answer] = allocate(node.endpoint("mcp2026.io/mig-1g.10gb"), [small])
    assert answer.envs["CUDA_VISIBLE_DEVICES"] == small
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == small
    node.hold("server", "mcp2026.io/mig-1g.10gb", small)

    node.share("{mode: Exclusive}")
    plugin.wait_for_log("waits for 1 pod: ns/server")
    assert small in node.nvml.mig_uuids(0)
    node.end_pods()
    node.has(WHOLE, 1)
    assert node.nvml.mig_uuids(0) == []


def test_mps_pods_get_their_part_and_the_daemon_lives_on(node: Node, mps: FakeMps) -> None:
    node.share("{mode: MPS, replicas: 4}")
    plugin = node.start()
    node.has(SHARED, 4)
    assert not node.devices(WHOLE)
    [daemon] = mps.processes()
    assert compute_mode(node.nvml) == "3"
    [answer] = allocate(node.endpoint(SHARED), [f"{GPU}::0", f"{GPU}::1"])
    assert answer.envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert answer.envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=40960M"
    assert [mount.container_path for mount in answer.mounts][-1] == "/dev/shm"
    assert Path(answer.mounts[0].host_path, "control").is_socket()
    node.hold("server", SHARED, f"{GPU}::0", f"{GPU}::1")

    assert plugin.stop() == 0
    assert mps.processes() == [daemon]
    plugin = node.start()
    node.has(SHARED, 4)
    assert mps.processes() == [daemon]

    node.share("{mode: Exclusive}")
    plugin.wait_for_log("waits for 1 pod: ns/server")
    assert mps.processes() == [daemon]
    node.end_pods()
    node.has(WHOLE, 1)
    assert mps.processes() == []
    assert compute_mode(node.nvml) == "0"


def test_a_record_that_cannot_be_read_stops_the_sharing_of_its_gpu_alone(node: Node, mps: FakeMps) -> None:
    record = mps.program.parent.parent / "mps" / PAIRS[1] / "daemon.json"
    record.parent.mkdir(parents=True)
    record.write_text("{")
    node.share("{mode: TimeSlice, replicas: 4}")
    plugin = node.start()
    node.has(SHARED, 4)
    plugin.wait_for_log(f"{record} cannot be read")
    assert PAIRS[1] not in node.endpoint(WHOLE).lists[-1]
    record.unlink()
    node.kubelet.wait(lambda: PAIRS[1] in node.endpoint(WHOLE).lists[-1], "the GPU is offered again")


def test_a_daemon_that_is_killed_is_started_again(node: Node, mps: FakeMps) -> None:
    node.share("{mode: MPS, unit: Memory}")
    node.start()
    node.has("mcp2026.io/gpu-memory", 80)
    [first] = mps.processes()
    os.kill(first, 9)
    node.kubelet.wait_until(lambda: mps.processes() not in ([], [first]), "another daemon")
    node.has("mcp2026.io/gpu-memory", 80)


def test_replicas_change_once_nobody_holds_one(node: Node) -> None:
    node.share("{mode: TimeSlice, replicas: 2}")
    plugin = node.start()
    node.has(SHARED, 2)
    node.hold("a", SHARED, f"{GPU}::1")
    node.share("{mode: TimeSlice, replicas: 3}")
    plugin.wait_for_log("waits for 1 pod: ns/a")
    node.has(SHARED, 1)
    node.share("{mode: TimeSlice, replicas: 2}")
    node.has(SHARED, 2)
    node.share("{mode: TimeSlice, replicas: 3}")
    node.has(SHARED, 1)
    node.end_pods()
    node.has(SHARED, 3)


def test_a_driver_that_wants_a_reset_first_is_told_and_the_way_back_is_open(node: Node) -> None:
    node.nvml.need_reset_for_mig(0)
    node.share("{mode: MIG, migLayout: [7g.80gb]}")
    plugin = node.start()
    plugin.wait_for_log(f"sharing a GPU: Failed MIG {PAIRS[0]}: ")
    assert "reset" in plugin.log
    node.nvml.need_reset_for_mig(0, needed=False)
    node.share("{mode: Exclusive}")
    node.has(WHOLE, 1)


def test_a_plugin_that_is_killed_in_the_middle_goes_on_when_it_starts_anew(node: Node) -> None:
    node.share("{mode: MIG, migLayout: [1g.10gb, 1g.10gb, 1g.10gb, 2g.20gb]}")
    node.nvml.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 0, "DELAY:300")
    plugin = node.start()
    node.kubelet.wait_until(lambda: node.nvml.mig_uuids(0), "a first slice")
    plugin.end()
    node.nvml.heal()
    node.start()
    node.has("mcp2026.io/mig-1g.10gb", 3)
    node.has("mcp2026.io/mig-2g.20gb", 1)
    assert len(node.nvml.mig_uuids(0)) == 4
