"""The plugin outlives its kubelets, and ends with what to do where it cannot work."""

import signal
import socket
import time
from pathlib import Path

import pytest

from tests.fakes.kubelet import FakeKubelet, running_kubelet
from tests.fakes.nvml import FakeNvml
from tests.fakes.plugin_process import PAIRS, StartPlugin, preferred
from tests.loopback import http_get

pytest_plugins = ["tests.fakes.plugin_fixtures"]


@pytest.mark.serial(reason="it has two seconds")
def test_a_restarted_kubelet_is_registered_with_again_once_within_two_seconds(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    start_plugin(nvml)
    kubelet.endpoint()

    kubelet.restart()
    began = time.monotonic()
    kubelet.wait(lambda: len(kubelet.endpoints) == 2, "a second registration", timeout_s=2.0)
    assert time.monotonic() - began < 2.0

    assert list(kubelet.endpoint(2).lists[0]) == PAIRS
    assert preferred(kubelet.endpoint(2), PAIRS, 2) == PAIRS[:2]
    assert kubelet.stays(lambda: len(kubelet.endpoints) == 2, 2.0), "it registered more than once"


def test_a_wiped_socket_is_made_again(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    start_plugin(nvml)
    kubelet.endpoint()
    (kubelet.directory / "mcp2026-gpu.sock").unlink()
    assert list(kubelet.endpoint(2).lists[0]) == PAIRS
    assert kubelet.endpoints[0].ended


def test_a_kubelet_that_stops_watching_is_registered_with_again(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    start_plugin(nvml)
    kubelet.endpoint().channel.close()
    assert list(kubelet.endpoint(2).lists[0]) == PAIRS


def test_a_kubelet_that_comes_late_is_waited_for(
    kubelet_root: Path, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    plugin = start_plugin(nvml)
    plugin.wait_for_log("found 4 GPUs")
    with running_kubelet(kubelet_root) as kubelet:
        assert list(kubelet.endpoint().lists[0]) == PAIRS


def test_no_kubelet_ends_with_the_path_and_what_to_do(
    kubelet_root: Path, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    plugin = start_plugin(nvml, "--kubelet-timeout=0.5")
    assert plugin.exit_status() == 1
    assert str(kubelet_root / "device-plugins/kubelet.sock") in plugin.log
    assert "hostPath" in plugin.log
    assert "Traceback" not in plugin.log


def test_a_kubelet_that_refuses_ends_with_its_reason(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    kubelet.refusal = "the ResourceName is invalid"
    plugin = start_plugin(nvml, "--kubelet-timeout=0.5")
    assert plugin.exit_status() == 1
    assert "the ResourceName is invalid" in plugin.log
    assert "mcp2026-device-plugin: the kubelet refused to register" in plugin.log


def test_no_driver_ends_with_what_to_do(kubelet: FakeKubelet, start_plugin: StartPlugin) -> None:
    plugin = start_plugin(None)
    assert plugin.exit_status() == 1
    assert "libnvidia-ml.so.1" in plugin.log
    assert "NVIDIA container runtime" in plugin.log
    assert "Traceback" not in plugin.log
    assert not kubelet.endpoints


def test_no_gpu_that_can_be_read_ends_naming_the_reason(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    nvml.fail("nvmlDeviceGetUUID", "*", "NVML_ERROR_GPU_IS_LOST")
    plugin = start_plugin(nvml)
    assert plugin.exit_status() == 1
    assert "mcp2026-device-plugin: the NVIDIA driver shows no GPU that can be read" in plugin.log
    assert "GPU is lost" in plugin.log


def test_a_node_without_a_driver_can_be_left_idle_alive_and_ready(
    kubelet: FakeKubelet, start_plugin: StartPlugin
) -> None:
    plugin = start_plugin(None, "--no-fail-on-no-gpus", "--metrics-port=0")
    plugin.wait_for_log("idle")
    port = plugin.metrics_port()
    assert http_get(port, "/healthz")[0] == 200
    assert http_get(port, "/readyz")[0] == 200
    assert plugin.stop() == 0
    assert plugin.log.count("idle") == 1
    assert not kubelet.endpoints


def test_an_idle_plugin_begins_when_the_driver_starts(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    nvml.fail("nvmlInitWithFlags", "*", "NVML_ERROR_DRIVER_NOT_LOADED")
    plugin = start_plugin(nvml, "--no-fail-on-no-gpus")
    plugin.wait_for_log("idle")
    nvml.heal()
    assert list(kubelet.endpoint().lists[0]) == PAIRS


def test_a_port_that_is_taken_is_named(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    with socket.create_server(("", 0)) as other:
        plugin = start_plugin(nvml, f"--metrics-port={other.getsockname()[1]}")
        assert plugin.exit_status() == 1
    assert "--metrics-port" in plugin.log
    assert "cannot be listened on" in plugin.log


def test_another_plugin_on_the_socket_is_named_and_left_alone(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    path = kubelet.directory / "mcp2026-gpu.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        plugin = start_plugin(nvml)
        assert plugin.exit_status() == 1
        assert "served by another process: stop the other" in plugin.log
        assert path.exists()


def test_a_file_in_the_place_of_the_socket_is_named_and_left_alone(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    path = kubelet.directory / "mcp2026-gpu.sock"
    path.write_text("not ours")
    plugin = start_plugin(nvml)
    assert plugin.exit_status() == 1
    assert "not a socket: remove it" in plugin.log
    assert path.read_text() == "not ours"


def test_the_socket_of_a_plugin_that_was_killed_is_replaced(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    killed = start_plugin(nvml)
    kubelet.endpoint()
    killed.process.kill()
    killed.process.wait()
    assert (kubelet.directory / "mcp2026-gpu.sock").exists()
    start_plugin(nvml)
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
        pytest.param(["--socket-prefix=a/b"], "--socket-prefix", id="a socket in another folder"),
        pytest.param(["--metrics-port=70000"], "--metrics-port", id="a port beyond the last"),
        pytest.param(["--kubelet-directory=/" + "x" * 120], "--kubelet-directory", id="too long a path"),
        pytest.param(["--node-name="], "NODE_NAME", id="no node name"),
        pytest.param(["--node-name=a/b"], "--node-name", id="a node name that is none"),
    ],
)
def test_a_bad_setting_is_refused_by_name(
    flags: list[str], names: str, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    plugin = start_plugin(nvml, *flags)
    assert plugin.exit_status() == 2
    assert names in plugin.log
    assert "allowed" in plugin.log
    assert "Traceback" not in plugin.log


def test_a_kubeconfig_that_cannot_be_read_is_told_and_the_kubelet_served_all_the_same(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin, tmp_path: Path
) -> None:
    broken = tmp_path / "kubeconfig"
    broken.write_text("clusters: [")
    plugin = start_plugin(nvml, "--publish-topology", environment={"KUBECONFIG": str(broken)})
    plugin.wait_for_log("nor a usable kubeconfig file is there")
    assert list(kubelet.endpoint().lists[0]) == PAIRS
    assert plugin.stop() == 0
    assert "Traceback" not in plugin.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_removes_the_socket(
    number: signal.Signals, kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    plugin = start_plugin(nvml)
    endpoint = kubelet.endpoint()
    assert plugin.stop(number) == 0
    assert not (kubelet.directory / "mcp2026-gpu.sock").exists()
    kubelet.wait(lambda: endpoint.ended, "the end of the stream")
    assert "Traceback" not in plugin.log
    assert nvml.calls()[-1] == "nvmlShutdown"


def test_a_signal_while_it_waits_for_the_kubelet_ends_it_cleanly(
    nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    plugin = start_plugin(nvml)
    plugin.wait_for_log("found 4 GPUs")
    assert plugin.stop() == 0
