"""GPUs and drivers that fail and come back, and what probes and metrics tell of it."""

from pathlib import Path

from tests.fakes.kubelet import FakeKubelet, running_kubelet
from tests.fakes.nvml import FakeNvml
from tests.fakes.plugin_process import PAIRS, StartPlugin, allocate, health, preferred
from tests.loopback import http_get

pytest_plugins = ["tests.fakes.plugin_fixtures"]


def test_a_lost_gpu_becomes_unhealthy_and_healthy_again_when_it_comes_back(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    start_plugin(nvml)
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
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    plugin = start_plugin(nvml, "--metrics-port=0")
    endpoint = kubelet.endpoint()
    port = plugin.metrics_port()
    plugin.wait_for_log("registered mcp2026.io/gpu")
    assert http_get(port, "/readyz")[0] == 200

    nvml.fail("*", "*", "NVML_ERROR_DRIVER_NOT_LOADED")
    kubelet.wait(lambda: len(endpoint.lists) >= 2, "a new list")
    assert health(endpoint.lists[1]) == ["Unhealthy"] * 4
    assert preferred(endpoint, PAIRS, 2) == PAIRS[:2]
    status, body = http_get(port, "/readyz")
    assert status == 503
    assert "Driver Not Loaded" in body
    assert http_get(port, "/healthz")[0] == 200

    nvml.heal()
    kubelet.wait(lambda: len(endpoint.lists) >= 3, "a list after the recovery")
    assert health(endpoint.lists[2]) == ["Healthy"] * 4
    assert http_get(port, "/readyz")[0] == 200


def test_a_gpu_that_could_not_be_read_at_the_start_is_offered_once_it_answers(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    nvml.fail("*", 1, "NVML_ERROR_GPU_IS_LOST")
    start_plugin(nvml)
    endpoint = kubelet.endpoint()
    assert list(endpoint.lists[0]) == [PAIRS[0], PAIRS[2], PAIRS[3]]

    nvml.heal()
    kubelet.wait(lambda: len(endpoint.lists) >= 2, "a new list")
    assert list(endpoint.lists[1]) == PAIRS
    assert preferred(endpoint, [PAIRS[2], PAIRS[1], PAIRS[0]], 2) == PAIRS[:2]


def test_a_driver_that_hangs_keeps_the_kubelet_served_and_does_not_hold_up_the_end(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    plugin = start_plugin(nvml)
    endpoint = kubelet.endpoint()
    nvml.fail("nvmlDeviceGetHandleByUUID", 0, "HANG")
    before = len(nvml.calls())
    kubelet.wait_until(lambda: "nvmlDeviceGetHandleByUUID" in nvml.calls()[before:], "a probe")

    def hangs() -> bool:
        asked = len(nvml.calls())
        return kubelet.stays(lambda: len(nvml.calls()) == asked, 1.0)

    kubelet.wait_until(hangs, "the probe hangs, once it has asked the other GPUs")
    assert preferred(endpoint, PAIRS, 2) == PAIRS[:2]
    assert plugin.stop() == 0
    assert not (kubelet.directory / "mcp2026-gpu.sock").exists()


def test_it_is_ready_once_registered_and_counts_what_it_did(
    kubelet_root: Path, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    plugin = start_plugin(nvml, "--metrics-port=0")
    port = plugin.metrics_port()
    assert http_get(port, "/healthz") == (200, "ok\n")
    status, body = http_get(port, "/readyz")
    assert (status, body) == (503, "not registered with the kubelet\n")

    with running_kubelet(kubelet_root) as kubelet:
        endpoint = kubelet.endpoint()
        plugin.wait_for_log("registered mcp2026.io/gpu")
        assert http_get(port, "/readyz") == (200, "ok\n")
        preferred(endpoint, PAIRS, 2)
        preferred(endpoint, [], 1)
        allocate(endpoint, PAIRS[:2])
        metrics = http_get(port, "/metrics")[1].splitlines()

    assert 'mcp2026_device_plugin_gpus{health="healthy"} 4.0' in metrics
    assert 'mcp2026_device_plugin_registrations_total{result="succeeded"} 1.0' in metrics
    assert 'mcp2026_device_plugin_preferences_total{kind="scored"} 1.0' in metrics
    assert 'mcp2026_device_plugin_preferences_total{kind="fallback"} 1.0' in metrics
    assert 'mcp2026_device_plugin_allocated_devices_total{resource="mcp2026.io/gpu"} 2.0' in metrics
    assert 'mcp2026_device_plugin_devices{health="healthy",resource="mcp2026.io/gpu"} 4.0' in metrics
