"""Which GPUs a container gets and what it is told, over machines as data."""

import time
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp2026.device_plugin.allocation import grant, preferred_gpus
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.topology.machine import machine_from_file

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
NAMES = sorted(path.stem for path in TOPOLOGIES.glob("*.yaml"))


def snapshot(name: str) -> Snapshot:
    machine = machine_from_file(TOPOLOGIES / f"{name}.yaml")
    return Snapshot(machine, minor_numbers={gpu.uuid: gpu.index for gpu in machine.gpus})


def indices(of: Snapshot, uuids: tuple[str, ...]) -> list[int]:
    return [of.positions[uuid] for uuid in uuids]


def uuids(of: Snapshot, *places: int) -> list[str]:
    return [of.machine.gpus[place].uuid for place in places]


@pytest.mark.parametrize(
    ("name", "free", "size", "expected"),
    [
        pytest.param(
            "4xa100-pcie-nvlink-pairs", (1, 2, 3), 2, [2, 3], id="a bridged pair before one across sockets"
        ),
        pytest.param(
            "4xa100-pcie-half-bridged", (0, 1, 2, 3), 1, [2], id="one GPU does not split the bridged pair"
        ),
        pytest.param("8xrtx4090-pcie-all-sys", (0, 4, 5), 2, [4, 5], id="without links, the same NUMA node"),
        pytest.param(
            "hgx-b200-8gpu-one-off-fabric", (1, 2, 6), 2, [1, 6], id="not the GPU that is off the fabric"
        ),
        pytest.param(
            "hgx-b200-8gpu-one-off-fabric", (1, 2, 6), 1, [2], id="one GPU: that which no set can use"
        ),
    ],
)
def test_the_preferred_gpus(name: str, free: tuple[int, ...], size: int, expected: list[int]) -> None:
    machine = snapshot(name)
    preference = preferred_gpus(machine, uuids(machine, *free), [], size)
    assert indices(machine, preference.uuids) == expected
    assert not preference.fell_back
    assert "weakest-link" in preference.reason


def test_every_superset_of_a_bridged_pair_gives_a_bridged_pair() -> None:
    machine = snapshot("8xa100-pcie-nv12-pairs-all-sys")
    pairs = {
        frozenset((place, peer.index)) for place in range(8) for peer in machine.graph.nvlink_peers(place)
    }
    assert len(pairs) == 4
    for size in range(2, 9):
        for free in combinations(range(8), size):
            if any(pair <= set(free) for pair in pairs):
                chosen = preferred_gpus(machine, uuids(machine, *free), [], 2).uuids
                assert frozenset(indices(machine, chosen)) in pairs, free


@settings(deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_an_answer_always_fits_the_question(name: str, data: st.DataObject) -> None:
    machine = snapshot(name)
    everything = [gpu.uuid for gpu in machine.machine.gpus]
    available = data.draw(st.lists(st.sampled_from(everything), unique=True))
    must = data.draw(st.lists(st.sampled_from(available), unique=True)) if available else []
    size = data.draw(st.integers(len(must), len(everything) + 1))

    answer = preferred_gpus(machine, available, must, size).uuids

    assert len(answer) == len(set(answer)) == min(size, len(available))
    assert set(answer) <= set(available)
    assert set(must) <= set(answer)


@pytest.mark.parametrize(
    ("available", "must", "size", "expected"),
    [
        pytest.param(["a", "b"], [], 1, ("a",), id="unknown devices: the first"),
        pytest.param(["a", "b"], ["b"], 1, ("b",), id="unknown devices: what must be included"),
        pytest.param([], [], 2, (), id="nothing there: nothing"),
        pytest.param(["a"], [], -3, (), id="a negative number: nothing"),
    ],
)
def test_what_cannot_be_scored_falls_back_and_says_so(
    available: list[str], must: list[str], size: int, expected: tuple[str, ...]
) -> None:
    preference = preferred_gpus(snapshot("1xt4-edge"), available, must, size)
    assert preference.uuids == expected
    assert preference.fell_back
    assert preference.reason


def test_four_of_sixteen_gpus_take_less_than_50_ms_of_the_processor() -> None:
    machine = snapshot("dgx-2-16xv100")
    everything = uuids(machine, *range(16))
    preferred_gpus(machine, everything, [], 4)
    times = []
    for _ in range(5):
        began = time.process_time()
        preferred_gpus(machine, everything, [], 4)
        times.append(time.process_time() - began)
    assert min(times) < 0.050


def test_a_container_gets_its_gpus_in_index_order_and_no_device_nodes() -> None:
    machine = snapshot("4xa100-pcie-nvlink-pairs")
    given_ = grant(machine, uuids(machine, 3, 1), None)
    expected = ",".join(uuids(machine, 1, 3))
    assert given_.environment == {"NVIDIA_VISIBLE_DEVICES": expected, "MCP2026_GPU_UUIDS": expected}
    assert given_.device_nodes == ()


def test_device_nodes_are_those_of_the_gpus_and_those_shared_that_exist() -> None:
    machine = snapshot("4xa100-pcie-nvlink-pairs")
    host = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia3"}
    nodes = grant(machine, uuids(machine, 1, 2), host.__contains__).device_nodes
    assert nodes == ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1")


def test_a_gpu_that_is_not_known_is_handed_on_after_those_that_are() -> None:
    machine = snapshot("4xa100-pcie-nvlink-pairs")
    environment = grant(machine, ["GPU-new", *uuids(machine, 2)], None).environment
    assert environment["MCP2026_GPU_UUIDS"] == f"{uuids(machine, 2)[0]},GPU-new"
