"""The links of a machine for people and pictures: what joins two GPUs, which links are broken, and why.

Decisions need only the matrices of `affinity`; this module names what is behind them.
"""

from dataclasses import dataclass
from enum import StrEnum

from mcp2026.topology.affinity import affinity_graph, link_bandwidth, link_sums
from mcp2026.topology.machine import Gpu, Machine, PcieAncestor


class LinkKind(StrEnum):
    """What joins two GPUs best."""

    NVLINK = "nvlink"
    """A bridge or a cable between the two."""
    NVSWITCH = "nvswitch"
    """NVLinks of both to NVSwitches."""
    PCIE = "pcie"


class LatencySource(StrEnum):
    """Where a latency comes from."""

    MEASURED = "measured"
    NOMINAL = "nominal"
    """A labelled constant of `affinity`."""


class BrokenReason(StrEnum):
    """Why a link of a GPU does not count."""

    DOWN = "down"
    """The GPU says that it is inactive."""
    ONE_SIDED = "one-sided"
    """The GPU at the other end does not report it."""
    UNSEEN_PEER = "unseen-peer"
    """It leads to a GPU that this machine does not show."""


@dataclass(frozen=True, slots=True)
class Link:
    """What joins the GPUs at positions `a` < `b`.

    `count` NVLinks of generation `version` (0: unknown) carry the bandwidth, both 0 for PCIe; `ancestor` is
    the nearest common PCIe ancestor. Bandwidth in GB/s, one direction; latency in ns.
    """

    a: int
    b: int
    kind: LinkKind
    count: int
    version: int
    ancestor: PcieAncestor
    bandwidth_gb_per_s: int
    latency_ns: int
    latency_source: LatencySource


@dataclass(frozen=True, slots=True)
class BrokenLink:
    """NVLink number `link` of the GPU `gpu` (an index) leads to `peer` (None: unknown) and does not count."""

    gpu: int
    link: int
    peer: int | None
    reason: BrokenReason

    def __str__(self) -> str:
        to = "" if self.peer is None else f" to GPU {self.peer}"
        return f"NVLink {self.link} of GPU {self.gpu}{to} is {self.reason}"


def links(machine: Machine) -> tuple[Link, ...]:
    """Return the best link of each pair of GPUs, by position."""
    graph = affinity_graph(machine)
    reported = link_sums(machine)
    found = []
    for a in range(len(graph)):
        for b in range(a + 1, len(graph)):
            one, other = machine.gpus[a], machine.gpus[b]
            direct = min(_count(one, other.index), _count(other, one.index))
            switched = min(_count(one, None), _count(other, None))
            if reported.direct[a][b] and reported.direct[b][a]:
                kind = LinkKind.NVLINK
            else:
                kind = LinkKind.NVSWITCH if switched else LinkKind.PCIE
            found.append(
                Link(
                    a,
                    b,
                    kind,
                    direct + switched,
                    max((link.version for link in one.nvlinks), default=0) if direct + switched else 0,
                    machine.pcie_ancestors[a][b] or PcieAncestor.SYSTEM,
                    graph.bandwidth[a][b],
                    graph.latency[a][b],
                    LatencySource.MEASURED if (a, b) in graph.measured else LatencySource.NOMINAL,
                )
            )
    return tuple(found)


def _count(gpu: Gpu, peer: int | None) -> int:
    return sum(link.peer == peer for link in gpu.nvlinks)


def broken_links(machine: Machine) -> tuple[BrokenLink, ...]:
    """Return the links that do not count, by GPU and number.

    Of two GPUs that report unequally many links to each other, the surplus of the one that reports more is
    one-sided: those with the highest numbers, as the ends do not say which link is which.
    """
    by_index = {gpu.index: gpu for gpu in machine.gpus}
    broken = []
    for gpu in machine.gpus:
        broken += [BrokenLink(gpu.index, number, None, BrokenReason.DOWN) for number in gpu.inactive_links]
        for peer in sorted({link.peer for link in gpu.nvlinks if link.peer is not None}):
            numbers = sorted(link.link for link in gpu.nvlinks if link.peer == peer)
            if peer not in by_index or peer == gpu.index:
                broken += [BrokenLink(gpu.index, link, peer, BrokenReason.UNSEEN_PEER) for link in numbers]
                continue
            agreed = _count(by_index[peer], gpu.index)
            broken += [BrokenLink(gpu.index, link, peer, BrokenReason.ONE_SIDED) for link in numbers[agreed:]]
    return tuple(sorted(broken, key=lambda link: (link.gpu, link.link)))


def fabric_bandwidths(machine: Machine) -> tuple[int, ...]:
    """Return the bandwidth of each GPU to NVSwitches in GB/s, by position; 0: it has no link to one."""
    return tuple(
        sum(link_bandwidth(link) for link in gpu.nvlinks if link.peer is None) for gpu in machine.gpus
    )


def off_fabric(machine: Machine) -> tuple[int, ...]:
    """Return the positions of GPUs that reach no NVSwitch while most others of the machine do."""
    reach = fabric_bandwidths(machine)
    if 2 * sum(map(bool, reach)) <= len(reach):
        return ()
    return tuple(place for place, bandwidth in enumerate(reach) if not bandwidth)
