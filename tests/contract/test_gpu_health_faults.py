"""The plugin as a process: what the driver tells of GPUs reaches the kubelet and the metrics."""

from pathlib import Path

from mcp2026.device_plugin.kubelet import deviceplugin_pb2 as contract
from tests.fakes.kubelet import Endpoint, FakeKubelet
from tests.fakes.nvml import FakeNvml
from tests.fakes.plugin_process import PAIRS, PluginProcess, StartPlugin
from tests.loopback import http_get

pytest_plugins = ["tests.fakes.plugin_fixtures"]


def latest(endpoint: Endpoint) -> dict[str, str]:
    devices: dict[str, contract.Device] = endpoint.lists[-1]
    return {name: device.health for name, device in devices.items()}


def becomes(kubelet: FakeKubelet, endpoint: Endpoint, uuid: str, health: str) -> None:
    kubelet.wait(lambda: latest(endpoint).get(uuid) == health, f"{uuid} is {health}")


def wait_for_events(plugin: PluginProcess, kubelet: FakeKubelet, nvml: FakeNvml) -> None:
    kubelet.wait_until(lambda: "nvmlEventSetWait_v2" in nvml.calls(), "somebody listens to events")


def test_an_xid_takes_the_gpu_off_at_once_and_it_comes_back(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    plugin = start_plugin(nvml, "--metrics-port=0", "--health-interval=5")  # too slow to see it by looking
    port = plugin.metrics_port()
    endpoint = kubelet.endpoint()
    wait_for_events(plugin, kubelet, nvml)
    nvml.emit_xid(1, 31)
    nvml.emit_xid(2, 79)
    becomes(kubelet, endpoint, PAIRS[2], "Unhealthy")
    assert latest(endpoint)[PAIRS[1]] == "Healthy"
    plugin.wait_for_log("XID 79: it has fallen off the PCIe bus: reboot the node")
    metrics = http_get(port, "/metrics")[1].splitlines()
    assert f'mcp2026_device_plugin_xids_total{{gpu="{PAIRS[2]}",xid="79"}} 1.0' in metrics
    assert f'mcp2026_device_plugin_xids_total{{gpu="{PAIRS[1]}",xid="31"}} 1.0' in metrics
    assert f'mcp2026_device_plugin_gpu_health{{gpu="{PAIRS[2]}",health="Unhealthy"}} 1.0' in metrics
    becomes(kubelet, endpoint, PAIRS[2], "Healthy")
    plugin.wait_for_log("a GPU is healthy again")


def test_a_fault_that_needs_a_reset_lasts_until_the_gpu_went_and_came_back(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    plugin = start_plugin(nvml)
    endpoint = kubelet.endpoint()
    wait_for_events(plugin, kubelet, nvml)
    nvml.emit_xid(0, 48)
    becomes(kubelet, endpoint, PAIRS[0], "Unhealthy")
    assert kubelet.stays(lambda: latest(endpoint)[PAIRS[0]] == "Unhealthy", 1.5)
    nvml.lose(0)
    plugin.wait_for_log("does not answer")
    nvml.recover(0)
    becomes(kubelet, endpoint, PAIRS[0], "Healthy")


def test_a_link_that_is_down_degrades_the_gpu_and_keeps_it_on_offer(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    plugin = start_plugin(nvml)
    endpoint = kubelet.endpoint()
    nvml.link_down(0, 0)
    plugin.wait_for_log(f"a GPU is degraded: {PAIRS[0]}: NVLink 0 down")
    assert "NVLink 0 down" in plugin.log
    assert latest(endpoint)[PAIRS[0]] == "Healthy"
    nvml.link_up(0, 0)
    plugin.wait_for_log("a GPU is healthy again")


def test_an_event_of_a_slice_takes_that_slice_alone(
    kubelet: FakeKubelet, kubelet_root: Path, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    configuration = kubelet_root / "mig.yaml"
    layout = "gpus: [{index: 0, sharing: {mode: MIG, migLayout: [1g.10gb, 1g.10gb]}}]"
    configuration.write_text(f"{layout}\nhealth: {{recoverAfterSeconds: 1}}\n")
    plugin = start_plugin(nvml, f"--config={configuration}")

    def slices() -> Endpoint | None:
        found = [one for one in kubelet.endpoints if one.request.resource_name == "mcp2026.io/mig-1g.10gb"]
        return found[-1] if found and found[-1].lists and len(found[-1].lists[-1]) == 2 else None

    endpoint: Endpoint = kubelet.wait(slices, "two slices")
    wait_for_events(plugin, kubelet, nvml)
    gpu_instances = [line.split() for line in nvml.state.read_text().splitlines()]
    numbers = next(words for words in gpu_instances if words and words[0] == "instance")
    nvml.emit_xid(0, 94, gi=int(numbers[2]), ci=0)
    kubelet.wait(lambda: sorted(latest(endpoint).values()) == ["Healthy", "Unhealthy"], "one slice fails")
    kubelet.wait(lambda: set(latest(endpoint).values()) == {"Healthy"}, "it is well again")
