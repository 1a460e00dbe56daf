"""The affinity graph of every machine: which links count, and for how much."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from mcp2026.topology.affinity import (
    NVLINK_GB_PER_S,
    NVLINK_LATENCY_NS,
    NVSWITCH_LATENCY_NS,
    PCIE_GB_PER_S,
    PCIE_LATENCY_NS,
    Peer,
    affinity_graph,
)
from mcp2026.topology.machine import Machine, NvLink, PcieAncestor, machine_from_file

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
FIXTURES = sorted(TOPOLOGIES.glob("*.yaml"))


def machine(name: str) -> Machine:
    return machine_from_file(TOPOLOGIES / f"{name}.yaml")


@pytest.mark.parametrize(
    "path", FIXTURES, ids=lambda path: f"{path.stem} is symmetric, with zeros on the diagonal"
)
def test_the_matrices_are_symmetric(path: Path) -> None:
    graph = affinity_graph(machine_from_file(path))
    for matrix in (graph.nvlink, graph.bandwidth, graph.latency):
        for a in range(len(graph)):
            assert matrix[a][a] == 0
            for b in range(len(graph)):
                assert matrix[a][b] == matrix[b][a]
                if a != b and matrix is not graph.nvlink:
                    assert matrix[a][b] > 0


@pytest.mark.parametrize(
    "path", FIXTURES, ids=lambda path: f"{path.stem} has the NVLinks of nvidia-smi topo -m"
)
def test_the_nvlinks_are_those_of_the_captured_matrix(path: Path) -> None:
    """`topo_m` is the text that nvidia-smi printed; NVn there is n links."""
    document = yaml.safe_load(path.read_text())
    graph = affinity_graph(machine_from_file(path))
    rows = [line.split() for line in document["topo_m"].splitlines() if line.strip().startswith("GPU")][1:]
    assert len(rows) == len(graph)
    for a, row in enumerate(rows):
        for b in range(len(graph)):
            cell = re.fullmatch(r"NV(\d+)", row[1 + b])
            links = int(cell[1]) if cell else 0
            version = next((link["version"] for gpu in document["gpus"] for link in gpu["nvlinks"]), 1)
            assert graph.nvlink[a][b] == links * NVLINK_GB_PER_S[version], (a, b)


@pytest.mark.parametrize(
    ("name", "a", "b", "nvlink", "bandwidth", "latency"),
    [
        pytest.param("dgx-1v-8xv100", 0, 3, 50, 50, NVLINK_LATENCY_NS, id="two direct links"),
        pytest.param("dgx-2-16xv100", 0, 15, 150, 150, NVSWITCH_LATENCY_NS, id="six links through switches"),
        pytest.param(
            "hgx-h100-8gpu", 0, 7, 450, 450, NVSWITCH_LATENCY_NS, id="eighteen links of generation 4"
        ),
        pytest.param(
            "4xgb200-nvl72-tray", 0, 3, 900, 900, NVSWITCH_LATENCY_NS, id="eighteen of generation 5"
        ),
        pytest.param(
            "hgx-b200-8gpu-one-off-fabric",
            0,
            2,
            0,
            PCIE_GB_PER_S[PcieAncestor.NODE],
            PCIE_LATENCY_NS[PcieAncestor.NODE],
            id="a GPU off the fabric has PCIe alone",
        ),
        pytest.param(
            "8xrtx4090-pcie-all-sys",
            0,
            7,
            0,
            PCIE_GB_PER_S[PcieAncestor.SYSTEM],
            PCIE_LATENCY_NS[PcieAncestor.SYSTEM],
            id="no links at all, across sockets",
        ),
    ],
)
def test_how_near_two_gpus_are(name: str, a: int, b: int, nvlink: int, bandwidth: int, latency: int) -> None:
    graph = affinity_graph(machine(name))
    assert (graph.nvlink[a][b], graph.bandwidth[a][b], graph.latency[a][b]) == (nvlink, bandwidth, latency)


def _with_links(machine: Machine, position: int, links: tuple[NvLink, ...]) -> Machine:
    gpus = list(machine.gpus)
    gpus[position] = replace(gpus[position], nvlinks=links)
    return replace(machine, gpus=tuple(gpus))


def test_a_link_that_one_end_alone_reports_does_not_count() -> None:
    broken = _with_links(machine("4xa100-pcie-nvlink-pairs"), 1, ())
    graph = affinity_graph(broken)
    assert graph.nvlink[0][1] == graph.nvlink[1][0] == 0
    assert graph.nvlink[2][3] == 300


def test_of_unequal_ends_the_lesser_counts() -> None:
    whole = machine("4xa100-pcie-nvlink-pairs")
    graph = affinity_graph(_with_links(whole, 1, whole.gpus[1].nvlinks[:5]))
    assert graph.nvlink[0][1] == 5 * 25


def test_through_switches_the_gpu_with_fewer_links_decides() -> None:
    whole = machine("hgx-h100-8gpu")
    graph = affinity_graph(_with_links(whole, 4, whole.gpus[4].nvlinks[:10]))
    assert graph.nvlink[0][4] == 10 * 25
    assert graph.nvlink[0][1] == 18 * 25


def test_a_link_to_a_gpu_that_is_not_there_counts_for_nothing() -> None:
    whole = machine("4xa100-pcie-nvlink-pairs")
    without_gpu_1 = replace(
        whole,
        gpus=(whole.gpus[0], *whole.gpus[2:]),
        pcie_ancestors=tuple(
            tuple(cell for b, cell in enumerate(row) if b != 1)
            for a, row in enumerate(whole.pcie_ancestors)
            if a != 1
        ),
    )
    graph = affinity_graph(without_gpu_1)
    assert graph.nvlink[0] == (0, 0, 0)
    assert graph.nvlink[1][2] == 300, "positions are not indices"


def test_a_generation_that_is_not_known_still_is_a_link() -> None:
    pair = machine("4xa100-pcie-nvlink-pairs")
    pair = _with_links(pair, 0, (NvLink(0, 1, 0),))
    assert affinity_graph(_with_links(pair, 1, (NvLink(0, 0, 0),))).nvlink[0][1] > 0


def test_peers_are_by_bandwidth_and_then_by_index() -> None:
    graph = affinity_graph(machine("dgx-1v-8xv100"))
    assert graph.nvlink_peers(0) == (
        Peer(3, 50, NVLINK_LATENCY_NS),
        Peer(4, 50, NVLINK_LATENCY_NS),
        Peer(1, 25, NVLINK_LATENCY_NS),
        Peer(2, 25, NVLINK_LATENCY_NS),
    )
    assert affinity_graph(machine("8xt4-pcie-2socket")).nvlink_peers(0) == ()


def test_nearer_ancestors_are_faster_and_never_slower_to_answer() -> None:
    by_distance = sorted(PcieAncestor)
    bandwidths = [PCIE_GB_PER_S[ancestor] for ancestor in by_distance]
    latencies = [PCIE_LATENCY_NS[ancestor] for ancestor in by_distance]
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert latencies == sorted(latencies)
    assert len(set(bandwidths)) == len(set(latencies)) == len(by_distance)
    assert NVLINK_LATENCY_NS < NVSWITCH_LATENCY_NS < min(latencies)
