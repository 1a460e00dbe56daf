"""The plugin as the real process, between a kubelet speaking the real contract and a fake of the driver."""

import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mcp2026.device_plugin.kubelet import deviceplugin_pb2 as contract
from tests.fakes.kubelet import Endpoint, FakeKubelet, running_kubelet
from tests.fakes.nvml import FakeNvml, build_library

TOPOLOGIES = Path(__file__).parents[1] / "topologies"
PAIRS = [f"GPU-a1004006-0000-4000-8000-00000000000{index}" for index in range(4)]
NODE = "node-1"
START_S = 20.0
NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Process:
    """A plugin that runs; `log` has what it wrote so far."""

    def __init__(self, root: Path, environment: dict[str, str], flags: list[str]) -> None:
        self.root = root
        self.log_file = root / f"plugin-{time.monotonic_ns()}.log"
        clean = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        command = [sys.executable, "-m", "mcp2026.device_plugin", f"--kubelet-directory={root}"]
        with self.log_file.open("w") as log:
            self.process = subprocess.Popen(
                [*command, *flags], env=clean | environment, stdout=log, stderr=log, cwd=root
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def wait_for_log(self, text: str, timeout_s: float = START_S) -> None:
        end = time.monotonic() + timeout_s
        while text not in self.log:
            assert time.monotonic() < end, f"no {text!r} in:\n{self.log}"
            assert self.process.poll() is None, f"ended before {text!r}:\n{self.log}"
            select.select([], [], [], 0.02)

    def exit_status(self, timeout_s: float = START_S) -> int:
        return self.process.wait(timeout_s)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.exit_status()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def root() -> Iterator[Path]:
    """A short path: that of a Unix socket has at most 107 bytes."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="kubelet-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def kubelet(root: Path) -> Iterator[FakeKubelet]:
    with running_kubelet(root) as kubelet:
        yield kubelet


@pytest.fixture
def start(root: Path) -> Iterator[Callable[..., Process]]:
    with ExitStack() as stack:

        def begin(nvml: FakeNvml | None, *flags: str, node: str = NODE) -> Process:
            environment = (nvml.environment if nvml else {}) | ({"NODE_NAME": node} if node else {})
            process = Process(root, environment, ["--no-publish-topology", "--health-interval=0.2", *flags])
            stack.callback(_end, process)
            return process

        yield begin


def _end(process: Process) -> None:
    if process.process.poll() is None:
        process.process.kill()
        process.process.wait()


@pytest.fixture
def nvml(tmp_path: Path, library: Path) -> FakeNvml:
    return FakeNvml(tmp_path / "pairs", TOPOLOGIES / "4xa100-pcie-nvlink-pairs.yaml", library=library)


def preferred(
    endpoint: Endpoint, available: list[str], size: int, must_include: list[str] | None = None
) -> list[str]:
    answer = endpoint.plugin.GetPreferredAllocation(
        contract.PreferredAllocationRequest(
            container_requests=[
                contract.ContainerPreferredAllocationRequest(
                    available_deviceIDs=available,
                    must_include_deviceIDs=must_include or [],
                    allocation_size=size,
                )
            ]
        ),
        timeout=5,
    )
    return list(answer.container_responses[0].deviceIDs)


def health(devices: dict[str, contract.Device]) -> list[str]:
    return [devices[uuid].health for uuid in PAIRS]


# ---- registering and listing ----


def test_it_registers_and_lists_all_gpus_with_their_numa_nodes(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    start(nvml)
    endpoint = kubelet.endpoint()

    assert endpoint.request.version == "v1beta1"
    assert endpoint.request.resource_name == "mcp2026.io/gpu"
    assert endpoint.request.endpoint == "mcp2026-gpu.sock"
    assert endpoint.request.options.get_preferred_allocation_available
    assert endpoint.options == endpoint.request.options
    devices = endpoint.lists[0]
    assert list(devices) == PAIRS
    assert health(devices) == ["Healthy"] * 4
    assert [devices[uuid].topology.nodes[0].ID for uuid in PAIRS] == [0, 0, 1, 1]


def test_a_gpu_without_a_known_numa_node_is_listed_without_one(
    kubelet: FakeKubelet, tmp_path: Path, library: Path, start: Callable[..., Process]
) -> None:
    start(FakeNvml(tmp_path / "t4", TOPOLOGIES / "1xt4-edge.yaml", library=library))
    (device,) = kubelet.endpoint().lists[0].values()
    assert not device.HasField("topology")


def test_the_prefix_of_the_resource_can_be_nvidias(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    start(nvml, "--resource-prefix=nvidia.com", "--socket-name=other.sock")
    request = kubelet.endpoint().request
    assert (request.resource_name, request.endpoint) == ("nvidia.com/gpu", "other.sock")


# ---- preferring and allocating ----


def test_every_availability_with_a_bridged_pair_gets_a_bridged_pair(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    start(nvml)
    endpoint = kubelet.endpoint()
    bridged = [PAIRS[:2], PAIRS[2:]]
    for size in (2, 3, 4):
        for available in itertools.permutations(PAIRS, size):
            whole = [pair for pair in bridged if set(pair) <= set(available)]
            got = preferred(endpoint, list(available), 2)
            assert len(got) == 2
            assert set(got) <= set(available)
            if whole:
                assert got in whole, f"{available} gave {got}"


def test_a_single_gpu_never_splits_a_pair_that_need_not_be_split(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    start(nvml)
    assert preferred(kubelet.endpoint(), [PAIRS[0], PAIRS[1], PAIRS[3]], 1) == [PAIRS[3]]


def test_what_must_be_included_is_and_with_its_partner(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    start(nvml)
    assert preferred(kubelet.endpoint(), PAIRS, 2, [PAIRS[3]]) == PAIRS[2:]


@pytest.mark.parametrize(
    ("available", "size", "expected"),
    [
        pytest.param(PAIRS[:1], 2, PAIRS[:1], id="more than there are"),
        pytest.param(["GPU-x", *PAIRS[1:]], 2, ["GPU-x", PAIRS[1]], id="a device that it does not know"),
        pytest.param(PAIRS, 0, [], id="none"),
        pytest.param(PAIRS, -1, [], id="a negative number"),
        pytest.param([], 1, [], id="nothing available"),
    ],
)
def test_a_question_without_a_good_answer_is_no_error(
    available: list[str],
    size: int,
    expected: list[str],
    kubelet: FakeKubelet,
    nvml: FakeNvml,
    start: Callable[..., Process],
) -> None:
    start(nvml)
    assert preferred(kubelet.endpoint(), available, size) == expected


def test_preferring_and_allocating_ask_the_driver_nothing(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    start(nvml, "--health-interval=3600")
    endpoint = kubelet.endpoint()
    before = nvml.calls()
    preferred(endpoint, PAIRS, 2)
    allocate(endpoint, PAIRS[:2])
    assert nvml.calls() == before
    assert before


def allocate(endpoint: Endpoint, *containers: list[str]) -> list[contract.ContainerAllocateResponse]:
    request = contract.AllocateRequest(
        container_requests=[contract.ContainerAllocateRequest(devices_ids=uuids) for uuids in containers]
    )
    return list(endpoint.plugin.Allocate(request, timeout=5).container_responses)


def test_a_container_is_told_its_gpus_in_the_order_it_sees_them(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    start(nvml)
    first, second = allocate(kubelet.endpoint(), [PAIRS[3], PAIRS[2]], [PAIRS[0]])
    names = f"{PAIRS[2]},{PAIRS[3]}"
    assert dict(first.envs) == {"NVIDIA_VISIBLE_DEVICES": names, "MCP2026_GPU_UUIDS": names}
    assert second.envs["MCP2026_GPU_UUIDS"] == PAIRS[0]
    assert not first.devices
    assert not first.mounts


def test_starting_a_container_needs_nothing_more(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    start(nvml)
    request = contract.PreStartContainerRequest(devices_ids=PAIRS[:1])
    assert (
        kubelet.endpoint().plugin.PreStartContainer(request, timeout=5)
        == contract.PreStartContainerResponse()
    )


# ---- health ----


def test_a_lost_gpu_becomes_unhealthy_and_healthy_again_when_it_comes_back(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    start(nvml)
    endpoint = kubelet.endpoint()

    nvml.fail("*", 2, "NVML_ERROR_GPU_IS_LOST")
    kubelet.wait(lambda: len(endpoint.lists) >= 2, "a new list")
    assert health(endpoint.lists[1]) == ["Healthy", "Healthy", "Unhealthy", "Healthy"]

    nvml.heal()
    kubelet.wait(lambda: len(endpoint.lists) >= 3, "a list after the recovery")
    assert health(endpoint.lists[2]) == ["Healthy"] * 4
    assert kubelet.stays(lambda: len(endpoint.lists) == 3, 1.0), "a list came though nothing changed"
    assert len(kubelet.endpoints) == 1


def test_a_driver_that_goes_away_makes_all_unhealthy_and_answers_go_on(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    plugin = start(nvml, "--health-port=0")
    endpoint = kubelet.endpoint()
    port = health_port(plugin)
    assert http(port, "/readyz")[0] == 200

    nvml.fail("*", "*", "NVML_ERROR_DRIVER_NOT_LOADED")
    kubelet.wait(lambda: len(endpoint.lists) >= 2, "a new list")
    assert health(endpoint.lists[1]) == ["Unhealthy"] * 4
    assert preferred(endpoint, PAIRS, 2) == PAIRS[:2]
    status, body = http(port, "/readyz")
    assert status == 503
    assert "Driver Not Loaded" in body
    assert http(port, "/healthz")[0] == 200

    nvml.heal()
    kubelet.wait(lambda: len(endpoint.lists) >= 3, "a list after the recovery")
    assert health(endpoint.lists[2]) == ["Healthy"] * 4
    assert http(port, "/readyz")[0] == 200


def test_a_gpu_that_could_not_be_read_at_the_start_is_offered_once_it_answers(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    nvml.fail("*", 1, "NVML_ERROR_GPU_IS_LOST")
    start(nvml)
    endpoint = kubelet.endpoint()
    assert list(endpoint.lists[0]) == [PAIRS[0], PAIRS[2], PAIRS[3]]

    nvml.heal()
    kubelet.wait(lambda: len(endpoint.lists) >= 2, "a new list")
    assert list(endpoint.lists[1]) == PAIRS
    assert preferred(endpoint, [PAIRS[2], PAIRS[1], PAIRS[0]], 2) == PAIRS[:2]


# ---- kubelets that come and go ----


def test_a_restarted_kubelet_is_registered_with_again_once_within_two_seconds(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    start(nvml)
    kubelet.endpoint()

    kubelet.restart()
    began = time.monotonic()
    kubelet.wait(lambda: len(kubelet.endpoints) == 2, "a second registration", timeout_s=2.0)
    assert time.monotonic() - began < 2.0

    assert list(kubelet.endpoint(2).lists[0]) == PAIRS
    assert preferred(kubelet.endpoint(2), PAIRS, 2) == PAIRS[:2]
    assert kubelet.stays(lambda: len(kubelet.endpoints) == 2, 2.0), "it registered more than once"


def test_a_wiped_socket_is_made_again(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    start(nvml)
    kubelet.endpoint()
    (kubelet.directory / "mcp2026-gpu.sock").unlink()
    assert list(kubelet.endpoint(2).lists[0]) == PAIRS
    assert kubelet.endpoints[0].ended


def test_a_kubelet_that_stops_watching_is_registered_with_again(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    start(nvml)
    kubelet.endpoint().channel.close()
    assert list(kubelet.endpoint(2).lists[0]) == PAIRS


def test_a_kubelet_that_comes_late_is_waited_for(
    root: Path, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    plugin = start(nvml)
    plugin.wait_for_log("found 4 GPUs")
    with running_kubelet(root) as kubelet:
        assert list(kubelet.endpoint().lists[0]) == PAIRS


# ---- what goes wrong ----


def test_no_kubelet_ends_with_the_path_and_what_to_do(
    root: Path, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    plugin = start(nvml, "--kubelet-timeout=0.5")
    assert plugin.exit_status() == 1
    assert str(root / "device-plugins/kubelet.sock") in plugin.log
    assert "hostPath" in plugin.log
    assert "Traceback" not in plugin.log


def test_a_kubelet_that_refuses_ends_with_its_reason(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    kubelet.refusal = "the ResourceName is invalid"
    plugin = start(nvml, "--kubelet-timeout=0.5")
    assert plugin.exit_status() == 1
    assert "the ResourceName is invalid" in plugin.log
    assert "RegistrationRefusedError" in plugin.log


def test_no_driver_ends_with_what_to_do(kubelet: FakeKubelet, start: Callable[..., Process]) -> None:
    plugin = start(None)
    assert plugin.exit_status() == 1
    assert "libnvidia-ml.so.1" in plugin.log
    assert "NVIDIA container runtime" in plugin.log
    assert "Traceback" not in plugin.log
    assert not kubelet.endpoints


def test_no_gpu_that_can_be_read_ends_naming_the_reason(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    nvml.fail("nvmlDeviceGetUUID", "*", "NVML_ERROR_GPU_IS_LOST")
    plugin = start(nvml)
    assert plugin.exit_status() == 1
    assert "NoGpusError" in plugin.log
    assert "GPU is lost" in plugin.log


def test_a_node_without_a_driver_can_be_left_idle_alive_and_ready(
    kubelet: FakeKubelet, start: Callable[..., Process]
) -> None:
    plugin = start(None, "--no-fail-on-no-gpus", "--health-port=0")
    plugin.wait_for_log("idle")
    port = health_port(plugin)
    assert http(port, "/healthz")[0] == 200
    assert http(port, "/readyz")[0] == 200
    assert plugin.stop() == 0
    assert plugin.log.count("idle") == 1
    assert not kubelet.endpoints


def test_an_idle_plugin_begins_when_the_driver_starts(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    nvml.fail("nvmlInitWithFlags", "*", "NVML_ERROR_DRIVER_NOT_LOADED")
    plugin = start(nvml, "--no-fail-on-no-gpus")
    plugin.wait_for_log("idle")
    nvml.heal()
    assert list(kubelet.endpoint().lists[0]) == PAIRS


def test_a_port_that_is_taken_is_named(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    with socket.create_server(("", 0)) as other:
        plugin = start(nvml, f"--health-port={other.getsockname()[1]}")
        assert plugin.exit_status() == 1
    assert "--health-port" in plugin.log
    assert "ProbePortError" in plugin.log


def test_another_plugin_on_the_socket_is_named_and_left_alone(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    path = kubelet.directory / "mcp2026-gpu.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        plugin = start(nvml)
        assert plugin.exit_status() == 1
        assert "served by another process" in plugin.log
        assert path.exists()


def test_a_file_in_the_place_of_the_socket_is_named_and_left_alone(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    path = kubelet.directory / "mcp2026-gpu.sock"
    path.write_text("not ours")
    plugin = start(nvml)
    assert plugin.exit_status() == 1
    assert "not a socket" in plugin.log
    assert path.read_text() == "not ours"


def test_the_socket_of_a_plugin_that_was_killed_is_replaced(
    kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    killed = start(nvml)
    kubelet.endpoint()
    killed.process.kill()
    killed.process.wait()
    assert (kubelet.directory / "mcp2026-gpu.sock").exists()
    start(nvml)
    assert list(kubelet.endpoint(2).lists[0]) == PAIRS


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        pytest.param(
            ["--resource-prefix=not a domain"], "--resource-prefix", id="a prefix that is no domain"
        ),
        pytest.param(["--resource-prefix=x.kubernetes.io"], "--resource-prefix", id="a reserved prefix"),
        pytest.param(["--health-interval=0"], "--health-interval", id="no time between probes"),
        pytest.param(["--health-interval=nan"], "--health-interval", id="an interval that is no number"),
        pytest.param(["--socket-name=a/b"], "--socket-name", id="a socket in another folder"),
        pytest.param(["--health-port=70000"], "--health-port", id="a port beyond the last"),
        pytest.param(["--kubelet-directory=/" + "x" * 120], "--kubelet-directory", id="too long a path"),
        pytest.param(["--node-name="], "NODE_NAME", id="no node name"),
    ],
)
def test_a_bad_setting_is_refused_by_name(
    flags: list[str], names: str, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    plugin = start(nvml, *flags)
    assert plugin.exit_status() == 2
    assert names in plugin.log
    assert "allowed" in plugin.log
    assert "Traceback" not in plugin.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_removes_the_socket(
    number: signal.Signals, kubelet: FakeKubelet, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    plugin = start(nvml)
    endpoint = kubelet.endpoint()
    plugin.process.send_signal(number)
    assert plugin.exit_status() == 0
    assert not (kubelet.directory / "mcp2026-gpu.sock").exists()
    kubelet.wait(lambda: endpoint.ended, "the end of the stream")
    assert "Traceback" not in plugin.log
    assert nvml.calls()[-1] == "nvmlShutdown"


def test_a_signal_while_it_waits_for_the_kubelet_ends_it_cleanly(
    nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    plugin = start(nvml)
    plugin.wait_for_log("found 4 GPUs")
    assert plugin.stop() == 0


# ---- probes and metrics ----


def health_port(plugin: Process) -> int:
    plugin.wait_for_log('"port": ')
    return int(plugin.log.split('"port": ')[1].split("}")[0].split(",")[0])


def http(port: int, path: str) -> tuple[int, str]:
    try:
        with NO_PROXY.open(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_it_is_ready_once_registered_and_counts_what_it_did(
    root: Path, nvml: FakeNvml, start: Callable[..., Process]
) -> None:
    plugin = start(nvml, "--health-port=0")
    port = health_port(plugin)
    assert http(port, "/healthz") == (200, "ok\n")
    status, body = http(port, "/readyz")
    assert (status, body) == (503, "not registered with the kubelet\n")

    with running_kubelet(root) as kubelet:
        endpoint = kubelet.endpoint()
        plugin.wait_for_log("registered mcp2026.io/gpu")
        assert http(port, "/readyz") == (200, "ok\n")
        preferred(endpoint, PAIRS, 2)
        preferred(endpoint, [], 1)
        allocate(endpoint, PAIRS[:2])
        metrics = http(port, "/metrics")[1].splitlines()

    assert 'mcp2026_device_plugin_gpus{health="healthy"} 4.0' in metrics
    assert 'mcp2026_device_plugin_registrations_total{result="succeeded"} 1.0' in metrics
    assert 'mcp2026_device_plugin_preferences_total{kind="scored"} 1.0' in metrics
    assert 'mcp2026_device_plugin_preferences_total{kind="fallback"} 1.0' in metrics
    assert "mcp2026_device_plugin_allocated_gpus_total 2.0" in metrics
