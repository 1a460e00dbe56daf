"""Several resources from one process: shares, GiB, a configuration that changes, devices by CDI."""

import json
import time
from pathlib import Path

import grpc
import pytest

from mcp2026.device_plugin.kubelet import deviceplugin_pb2 as contract
from tests.fakes.kubelet import Endpoint, FakeKubelet
from tests.fakes.nvml import FakeNvml
from tests.fakes.plugin_process import PAIRS, TOPOLOGIES, StartPlugin, allocate, preferred
from tests.loopback import http_get

pytest_plugins = ["tests.fakes.plugin_fixtures"]

QUICK = "health: {recoverAfterSeconds: 0.1}\n"


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    return tmp_path / "device-plugin.yaml"


def registered(kubelet: FakeKubelet, resource: str) -> Endpoint:
    """Return the registration of `resource`, once it has sent its first list."""

    def find() -> Endpoint | None:
        found = [each for each in kubelet.endpoints if each.request.resource_name == f"mcp2026.io/{resource}"]
        return found[-1] if found and found[-1].lists else None

    found = kubelet.wait(find, f"a list of {resource}")
    assert isinstance(found, Endpoint)
    return found


def write(path: Path, text: str) -> None:
    """Replace the file as a ConfigMap is: another inode."""
    unfinished = path.with_suffix(".new")
    unfinished.write_text(QUICK + text)
    unfinished.replace(path)


def test_each_gpu_is_offered_by_its_own_name_on_a_socket_of_its_own(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin, configuration: Path
) -> None:
    write(
        configuration,
        "sharing: {mode: TimeSlice, replicas: 3}\n"
        "gpus:\n"
        "- {index: 2, sharing: {mode: TimeSlice, unit: Memory}}\n"
        "nodes: {node-1: {gpus: [{index: 3, sharing: {}}]}}\n",
    )
    plugin = start_plugin(nvml, f"--config={configuration}", "--metrics-port=0")
    whole, shared, memory = (registered(kubelet, name) for name in ("gpu", "gpu-shared", "gpu-memory"))
    assert whole.request.endpoint == "mcp2026-gpu.sock"
    assert shared.request.endpoint == "mcp2026-gpu-shared.sock"
    assert memory.request.endpoint == "mcp2026-gpu-memory.sock"
    assert list(whole.lists[0]) == [PAIRS[3]]
    assert list(shared.lists[0]) == [f"{uuid}::{number}" for uuid in PAIRS[:2] for number in range(3)]
    assert list(memory.lists[0]) == [f"{PAIRS[2]}::m{number}" for number in range(80)]

    assert preferred(shared, list(shared.lists[0]), 2) == [f"{PAIRS[0]}::0", f"{PAIRS[1]}::0"]
    (given,) = allocate(shared, [f"{PAIRS[1]}::2"])
    assert dict(given.envs) == {"NVIDIA_VISIBLE_DEVICES": PAIRS[1], "MCP2026_GPU_UUIDS": PAIRS[1]}
    (given,) = allocate(memory, [f"{PAIRS[2]}::m{number}" for number in range(16)])
    assert given.envs["MCP2026_GPU_UUIDS"] == PAIRS[2]

    nvml.fail("*", 1, "NVML_ERROR_GPU_IS_LOST")
    kubelet.wait(lambda: len(shared.lists) > 1, "a list with unhealthy shares")
    assert [device.health for device in shared.lists[-1].values()] == ["Healthy"] * 3 + ["Unhealthy"] * 3
    assert len(whole.lists) == len(memory.lists) == 1, "the others did not change"
    metrics = http_get(plugin.metrics_port(), "/metrics")[1]
    assert 'mcp2026_device_plugin_devices{health="unhealthy",resource="mcp2026.io/gpu-shared"} 3.0' in metrics


def test_a_changed_configuration_moves_gpus_to_another_resource_without_a_restart(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin, configuration: Path
) -> None:
    write(configuration, "")
    plugin = start_plugin(nvml, f"--config={configuration}")
    whole = registered(kubelet, "gpu")
    kubelet.hold("runs", [PAIRS[0]])
    kubelet.wait_until(lambda: plugin.process.poll() is None, "a plugin that runs")

    began = time.monotonic()
    write(configuration, "sharing: {mode: TimeSlice, replicas: 2}\n")
    shared = registered(kubelet, "gpu-shared")
    kubelet.wait(lambda: len(shared.lists[-1]) == 6, "shares of the GPUs that are free")
    kubelet.wait(lambda: list(whole.lists[-1]) == [PAIRS[0]], "what is held stays alone")
    assert time.monotonic() - began < 10

    with kubelet.changed:
        kubelet.pods.clear()
    kubelet.wait(
        lambda: len(shared.lists[-1]) == 8 and not whole.lists[-1], "all is shared, the old list empty"
    )
    assert len(kubelet.endpoints) == 2, "no resource was registered twice"

    write(configuration, "sharing: {mode: TimeSlice, repicas: 4}\n")
    plugin.wait_for_log("configuration.sharing.repicas")
    assert kubelet.stays(lambda: len(shared.lists[-1]) == 8, 1.0), "the old configuration holds"
    assert str(configuration) in plugin.log
    write(configuration, "sharing: {}\n")
    kubelet.wait(lambda: list(whole.lists[-1]) == PAIRS, "whole GPUs again")
    kubelet.wait(lambda: not shared.lists[-1], "an empty list of shares")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        pytest.param("sharing: {mode: MPS, replicas: 49}\n", "sharing.replicas", id="an impossible share"),
        pytest.param("shared: 4\n", "configuration.shared", id="an unknown field"),
        pytest.param("sharing: [", "not YAML", id="no YAML"),
    ],
)
def test_a_first_configuration_that_cannot_be_ends_it_with_file_and_field(
    text: str,
    field: str,
    kubelet: FakeKubelet,
    nvml: FakeNvml,
    start_plugin: StartPlugin,
    configuration: Path,
) -> None:
    write(configuration, text)
    plugin = start_plugin(nvml, f"--config={configuration}")
    assert plugin.exit_status() == 2
    assert f"mcp2026-device-plugin: {configuration}: " in plugin.log
    assert field in plugin.log
    assert "Traceback" not in plugin.log
    assert not kubelet.endpoints


def test_gib_of_two_gpus_are_the_one_thing_that_is_refused(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin, configuration: Path
) -> None:
    write(configuration, "sharing: {mode: TimeSlice, unit: Memory}\n")
    start_plugin(nvml, f"--config={configuration}")
    memory = registered(kubelet, "gpu-memory")
    everything = list(memory.lists[0])
    chosen = preferred(memory, everything, 60)
    assert len({device.partition("::")[0] for device in chosen}) == 1
    assert len(preferred(memory, everything, 100)) == 100, "a preference is never an error"
    with pytest.raises(grpc.RpcError) as refused:
        allocate(memory, [f"{PAIRS[0]}::m1", f"{PAIRS[1]}::m1"])
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "the devices are of 2 GPUs" in refused.value.details()
    assert allocate(memory, [f"{PAIRS[0]}::m1"]), "the next one is served"


def test_shares_of_one_gpu_are_refused_where_only_distinct_ones_are_wanted(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin, configuration: Path
) -> None:
    write(configuration, "sharing: {mode: TimeSlice}\nshares: {distinctOnly: true}\n")
    start_plugin(nvml, f"--config={configuration}")
    shared = registered(kubelet, "gpu-shared")
    assert allocate(shared, [f"{PAIRS[0]}::0", f"{PAIRS[1]}::0"])
    with pytest.raises(grpc.RpcError, match="2 of the shares are of"):
        allocate(shared, [f"{PAIRS[0]}::0", f"{PAIRS[0]}::1"])


def test_devices_by_cdi_name_are_those_of_the_specification_on_disk(
    kubelet_root: Path, kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    folder = kubelet_root / "cdi"
    folder.mkdir()
    (folder / ".mcp2026.io-gpu.json.killed").write_text("{")
    plugin = start_plugin(nvml, "--device-list-strategy=cdi-cri")
    (given,) = allocate(registered(kubelet, "gpu"), [PAIRS[2], PAIRS[1]])
    document = json.loads((folder / "mcp2026.io-gpu.json").read_text())
    known = {f"{document['kind']}={device['name']}" for device in document["devices"]}
    here = [node for node in ("/dev/nvidia1", "/dev/nvidia2") if Path(node).exists()]
    if len(here) == 2:
        assert [device.name for device in given.cdi_devices] == [
            f"mcp2026.io/gpu={uuid}" for uuid in PAIRS[1:3]
        ]
        assert {device.name for device in given.cdi_devices} <= known
        assert given.envs["NVIDIA_VISIBLE_DEVICES"] == "void"
    else:  # no device nodes on this host: nothing for CDI to name, so the variable stays
        assert not known
        assert given.envs["NVIDIA_VISIBLE_DEVICES"] == f"{PAIRS[1]},{PAIRS[2]}"
    assert given.envs["MCP2026_GPU_UUIDS"] == f"{PAIRS[1]},{PAIRS[2]}"
    assert [path.name for path in folder.iterdir()] == ["mcp2026.io-gpu.json"]
    assert plugin.stop() == 0
    assert (folder / "mcp2026.io-gpu.json").exists(), "containers that start again still need it"


def test_a_specification_that_nothing_uses_is_removed(
    kubelet_root: Path, kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    left = kubelet_root / "cdi" / "mcp2026.io-gpu.json"
    left.parent.mkdir()
    left.write_text("{}")
    start_plugin(nvml)
    registered(kubelet, "gpu")
    assert not left.exists()


def test_a_cdi_folder_that_cannot_be_made_ends_it_with_what_to_do(
    kubelet_root: Path, kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    (kubelet_root / "file").write_text("")
    plugin = start_plugin(
        nvml, "--device-list-strategy=envvar,cdi-cri", f"--cdi-directory={kubelet_root / 'file' / 'cdi'}"
    )
    assert plugin.exit_status() == 1
    assert "leave cdi-cri out of --device-list-strategy" in plugin.log
    assert "Traceback" not in plugin.log


def test_sockets_that_a_killed_plugin_left_are_removed(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin, configuration: Path
) -> None:
    write(configuration, "sharing: {mode: TimeSlice}\n")
    killed = start_plugin(nvml, f"--config={configuration}")
    registered(kubelet, "gpu-shared")
    killed.process.kill()
    killed.process.wait()
    assert (kubelet.directory / "mcp2026-gpu-shared.sock").exists()
    plugin = start_plugin(nvml)
    plugin.wait_for_log("registered mcp2026.io/gpu with")
    assert sorted(path.name for path in kubelet.directory.glob("mcp2026*")) == ["mcp2026-gpu.sock"]


def test_a_second_plugin_on_the_node_is_refused_whatever_its_resources_are_called(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    first = start_plugin(nvml)
    endpoint = registered(kubelet, "gpu")
    second = start_plugin(
        nvml, "--resource-prefix=nvidia.com", "--socket-prefix=other-", "--kubelet-timeout=0.5"
    )
    assert second.exit_status() == 1
    assert "another MCP 2026 device plugin" in second.log
    assert len(kubelet.endpoints) == 1
    assert first.process.poll() is None
    assert not endpoint.ended


LARGEST_RESIDENT_KIB = 80 * 1024


def test_as_many_devices_as_100_gpus_by_4_shares_take_less_than_80_mib(
    kubelet: FakeKubelet,
    tmp_path: Path,
    nvml_library: Path,
    start_plugin: StartPlugin,
    configuration: Path,
) -> None:
    write(configuration, "sharing: {mode: TimeSlice, replicas: 25}\n")
    nvml = FakeNvml(tmp_path / "driver", TOPOLOGIES / "dgx-2-16xv100.yaml", library=nvml_library)
    plugin = start_plugin(nvml, f"--config={configuration}")
    shared = registered(kubelet, "gpu-shared")
    devices = list(shared.lists[0])
    assert len(devices) == 400
    for size in (1, 4, 16):
        allocate(shared, preferred(shared, devices, size))
    status = Path(f"/proc/{plugin.process.pid}/status").read_text()
    (resident,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")]
    assert resident < LARGEST_RESIDENT_KIB


def test_a_full_list_of_shares_goes_in_one_message(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin, configuration: Path
) -> None:
    write(configuration, "sharing: {mode: TimeSlice, replicas: 64}\n")
    start_plugin(nvml, f"--config={configuration}")
    shared = registered(kubelet, "gpu-shared")
    assert len(shared.lists[0]) == 4 * 64
    request = contract.PreferredAllocationRequest(
        container_requests=[
            contract.ContainerPreferredAllocationRequest(
                available_deviceIDs=list(shared.lists[0]), allocation_size=4
            )
        ]
    )
    answer = shared.plugin.GetPreferredAllocation(request, timeout=5).container_responses[0]
    assert {device.partition("::")[0] for device in answer.deviceIDs} == set(PAIRS)
