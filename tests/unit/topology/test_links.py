"""Broken links are named, GPUs off the fabric are found, and a latency says where it comes from."""

from dataclasses import replace
from pathlib import Path

import pytest

from mcp2026.topology.affinity import NVLINK_LATENCY_NS, affinity_graph
from mcp2026.topology.links import LatencySource, LinkKind, broken_links, fabric_bandwidths, links, off_fabric
from mcp2026.topology.machine import Machine, NvLink, PcieAncestor, machine_from_file

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
FIXTURES = sorted(TOPOLOGIES.glob("*.yaml"))


def machine(name: str) -> Machine:
    return machine_from_file(TOPOLOGIES / f"{name}.yaml")


def _with_links(machine: Machine, position: int, links: tuple[NvLink, ...], *down: int) -> Machine:
    gpus = list(machine.gpus)
    gpus[position] = replace(gpus[position], nvlinks=links, inactive_links=down)
    return replace(machine, gpus=tuple(gpus))


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_no_fixture_has_a_broken_link_and_each_pair_has_a_link(path: Path) -> None:
    read = machine_from_file(path)
    assert broken_links(read) == ()
    graph = affinity_graph(read)
    assert len(links(read)) == len(graph) * (len(graph) - 1) // 2
    for link in links(read):
        assert link.bandwidth_gb_per_s == graph.bandwidth[link.a][link.b]
        assert (link.kind is LinkKind.PCIE) == (not link.count) == (not graph.nvlink[link.a][link.b])
        assert link.latency_source is LatencySource.NOMINAL


def test_what_joins_two_gpus() -> None:
    bridge = links(machine("4xa100-pcie-half-bridged"))[0]
    assert (bridge.kind, bridge.count, bridge.version, bridge.ancestor) == (
        LinkKind.NVLINK,
        12,
        3,
        PcieAncestor.NODE,
    )
    switched = links(machine("hgx-h100-8gpu"))[0]
    assert (switched.kind, switched.count, switched.version) == (LinkKind.NVSWITCH, 18, 4)


def test_links_that_are_down_one_sided_or_lead_away_are_named() -> None:
    whole = machine("4xa100-pcie-nvlink-pairs")
    broken = _with_links(whole, 1, whole.gpus[1].nvlinks[:10], 10, 11)
    broken = _with_links(broken, 3, (*broken.gpus[3].nvlinks, NvLink(12, 9, 3)))
    assert [str(link) for link in broken_links(broken)] == [
        "NVLink 10 of GPU 0 to GPU 1 is one-sided",
        "NVLink 11 of GPU 0 to GPU 1 is one-sided",
        "NVLink 10 of GPU 1 is down",
        "NVLink 11 of GPU 1 is down",
        "NVLink 12 of GPU 3 to GPU 9 is unseen-peer",
    ]
    assert affinity_graph(broken).nvlink[0][1] == 250


def test_a_link_to_itself_counts_for_nothing_and_is_named() -> None:
    whole = machine("4xl40s-pcie-2socket")
    looped = _with_links(whole, 0, (NvLink(0, 0, 3),))
    assert affinity_graph(looped).nvlink[0] == (0, 0, 0, 0)
    assert len(broken_links(looped)) == 1


def test_a_gpu_off_the_fabric_is_found() -> None:
    assert off_fabric(machine("hgx-b200-8gpu-one-off-fabric")) == (2,)
    assert fabric_bandwidths(machine("hgx-b200-8gpu-one-off-fabric"))[:3] == (900, 900, 0)
    assert off_fabric(machine("hgx-h100-8gpu")) == ()
    assert off_fabric(machine("4xa100-pcie-half-bridged")) == (), "there is no fabric to be off"


def test_a_measured_latency_goes_before_the_nominal_one_and_says_so() -> None:
    whole = machine("4xa100-pcie-nvlink-pairs")
    latencies = [[None] * 4 for _ in range(4)]
    latencies[0][2] = 1_850  # type: ignore[call-overload]
    measured = replace(whole, measured_latency_ns=tuple(map(tuple, latencies)))
    graph = affinity_graph(measured)
    assert (graph.latency[0][2], graph.latency[0][1]) == (1_850, NVLINK_LATENCY_NS)
    assert graph.measured == ((0, 2),)
    sources = {(link.a, link.b): link.latency_source for link in links(measured)}
    assert sources[0, 2] is LatencySource.MEASURED
    assert sources[0, 1] is LatencySource.NOMINAL
    assert not graph.nvlink_peers(0)[0].measured


def test_a_measured_peer_says_so() -> None:
    whole = machine("4xa100-pcie-nvlink-pairs")
    measured = replace(whole, measured_latency_ns=((None, 650, None, None),) + ((None,) * 4,) * 3)
    peer = affinity_graph(measured).nvlink_peers(0)[0]
    assert (peer.latency_ns, peer.measured) == (650, True)
