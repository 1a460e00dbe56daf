"""The kubelet gets a device list, preferences and allocations from the plugin's process."""

import itertools
from pathlib import Path

import pytest

from mcp2026.device_plugin.kubelet import deviceplugin_pb2 as contract
from tests.fakes.kubelet import FakeKubelet
from tests.fakes.nvml import FakeNvml
from tests.fakes.plugin_process import PAIRS, TOPOLOGIES, StartPlugin, allocate, health, preferred

pytest_plugins = ["tests.fakes.plugin_fixtures"]


def test_it_registers_and_lists_all_gpus_with_their_numa_nodes(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    start_plugin(nvml)
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
    kubelet: FakeKubelet, tmp_path: Path, nvml_library: Path, start_plugin: StartPlugin
) -> None:
    start_plugin(FakeNvml(tmp_path / "t4", TOPOLOGIES / "1xt4-edge.yaml", library=nvml_library))
    (device,) = kubelet.endpoint().lists[0].values()
    assert not device.HasField("topology")


def test_the_prefix_of_the_resource_can_be_nvidias(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    start_plugin(nvml, "--resource-prefix=nvidia.com", "--socket-prefix=other-")
    request = kubelet.endpoint().request
    assert (request.resource_name, request.endpoint) == ("nvidia.com/gpu", "other-gpu.sock")


def test_every_availability_with_a_bridged_pair_gets_a_bridged_pair(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    start_plugin(nvml)
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
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    start_plugin(nvml)
    assert preferred(kubelet.endpoint(), [PAIRS[0], PAIRS[1], PAIRS[3]], 1) == [PAIRS[3]]


def test_what_must_be_included_is_and_with_its_partner(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    start_plugin(nvml)
    assert preferred(kubelet.endpoint(), PAIRS, 2, [PAIRS[3]]) == PAIRS[2:]


@pytest.mark.parametrize(
    ("available", "size", "expected"),
    [
        pytest.param(PAIRS[:1], 2, PAIRS[:1], id="more than there are"),
        pytest.param(["GPU-x", PAIRS[1]], 2, ["GPU-x", PAIRS[1]], id="a device that it does not know"),
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
    start_plugin: StartPlugin,
) -> None:
    start_plugin(nvml)
    assert preferred(kubelet.endpoint(), available, size) == expected


def test_preferring_and_allocating_ask_the_driver_nothing(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    start_plugin(nvml, "--health-interval=3600")
    endpoint = kubelet.endpoint()
    before = nvml.calls()
    preferred(endpoint, PAIRS, 2)
    allocate(endpoint, PAIRS[:2])
    assert nvml.calls() == before
    assert before


def test_a_container_is_told_its_gpus_in_the_order_it_sees_them(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    start_plugin(nvml)
    first, second = allocate(kubelet.endpoint(), [PAIRS[3], PAIRS[2]], [PAIRS[0]])
    names = f"{PAIRS[2]},{PAIRS[3]}"
    assert dict(first.envs) == {"NVIDIA_VISIBLE_DEVICES": names, "MCP2026_GPU_UUIDS": names}
    assert second.envs["MCP2026_GPU_UUIDS"] == PAIRS[0]
    assert not first.devices
    assert not first.mounts


def test_starting_a_container_needs_nothing_more(
    kubelet: FakeKubelet, nvml: FakeNvml, start_plugin: StartPlugin
) -> None:
    start_plugin(nvml)
    request = contract.PreStartContainerRequest(devices_ids=PAIRS[:1])
    assert (
        kubelet.endpoint().plugin.PreStartContainer(request, timeout=5)
        == contract.PreStartContainerResponse()
    )
