"""How near two GPUs are: the affinity graph of a machine, as matrices of bandwidth and latency.

Bandwidths are nominal, one direction, GB/s. NVLink per link and generation as NVIDIA's architecture white
papers state: P100 20, V100, A100 and H100 25, B200 50. PCIe figures are labelled constants, not
measurements: what a PCIe 4.0 x16 path carries at best behind each kind of ancestor. Latencies are measured
where the machine has a measurement, else labelled constants; no reliable public figure per link was found.
The score does not use latencies.

A virtual machine may hide the NVSwitches. The NVML adapter then reports links whose other end is unknown as
links to a switch, so that such a machine has the graph of the real one.
"""

from dataclasses import dataclass

from mcp2026.topology.machine import Machine, NvLink, PcieAncestor

NVLINK_GB_PER_S = {1: 20, 2: 25, 3: 25, 4: 25, 5: 50}
UNKNOWN_NVLINK_GB_PER_S = 20
PCIE_GB_PER_S = {
    PcieAncestor.INTERNAL: 26,
    PcieAncestor.SINGLE: 24,
    PcieAncestor.MULTIPLE: 22,
    PcieAncestor.HOSTBRIDGE: 18,
    PcieAncestor.NODE: 16,
    PcieAncestor.SYSTEM: 10,
}
NVLINK_LATENCY_NS = 700
NVSWITCH_LATENCY_NS = 1_000
PCIE_LATENCY_NS = {
    PcieAncestor.INTERNAL: 1_100,
    PcieAncestor.SINGLE: 1_300,
    PcieAncestor.MULTIPLE: 1_600,
    PcieAncestor.HOSTBRIDGE: 1_900,
    PcieAncestor.NODE: 2_100,
    PcieAncestor.SYSTEM: 2_600,
}


@dataclass(frozen=True, slots=True)
class Peer:
    """A GPU that another reaches by NVLink. Bandwidth in GB/s, latency in ns and whether it was measured."""

    index: int
    bandwidth_gb_per_s: int
    latency_ns: int
    measured: bool = False


@dataclass(frozen=True, slots=True)
class AffinityGraph:
    """Symmetric n x n matrices over the positions of a machine's GPUs; the diagonals are 0.

    `nvlink` holds the bandwidth over NVLink alone, `bandwidth` that of the better of NVLink and PCIe, both
    in GB/s; `latency` is in ns, and symmetric unless it was measured. `numa` has the NUMA node of each GPU,
    None where unknown. `degraded` has the positions of GPUs that are usable and less preferred, `measured`
    the pairs of positions whose latency was measured.
    """

    nvlink: tuple[tuple[int, ...], ...]
    bandwidth: tuple[tuple[int, ...], ...]
    latency: tuple[tuple[int, ...], ...]
    numa: tuple[int | None, ...]
    degraded: tuple[int, ...] = ()
    measured: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return len(self.numa)

    def nvlink_peers(self, gpu: int) -> tuple[Peer, ...]:
        """Return the NVLink peers of `gpu`, by bandwidth, descending, then by index."""
        row = self.nvlink[gpu]
        peers = [
            Peer(other, row[other], self.latency[gpu][other], (gpu, other) in self.measured)
            for other in range(len(self))
            if row[other]
        ]
        return tuple(sorted(peers, key=lambda peer: (-peer.bandwidth_gb_per_s, peer.index)))


@dataclass(frozen=True, slots=True)
class LinkSums:
    """Bandwidth in GB/s by position: what each GPU reports of links to each other, and to switches."""

    direct: tuple[tuple[int, ...], ...]
    switched: tuple[int, ...]


def link_sums(machine: Machine) -> LinkSums:
    """Return what each GPU of `machine` reports, whether or not the other end agrees."""
    size = len(machine.gpus)
    position = {gpu.index: place for place, gpu in enumerate(machine.gpus)}
    direct = [[0] * size for _ in range(size)]
    switched = [0] * size
    for place, gpu in enumerate(machine.gpus):
        for link in gpu.nvlinks:
            if link.peer is None:
                switched[place] += link_bandwidth(link)
            elif link.peer in position and position[link.peer] != place:
                direct[place][position[link.peer]] += link_bandwidth(link)
    return LinkSums(tuple(map(tuple, direct)), tuple(switched))


def affinity_graph(machine: Machine) -> AffinityGraph:
    """Return the affinity graph of `machine`.

    A link counts only when both ends report it: a one-sided link is a broken one, as is one that is down
    (`links.broken_links` names them). Two GPUs on an NVSwitch are joined by as many links as the lesser of
    the two has to it; one without any is off the fabric and has PCIe alone.
    """
    size = len(machine.gpus)
    reported = link_sums(machine)
    nvlink = [[0] * size for _ in range(size)]
    bandwidth = [[0] * size for _ in range(size)]
    latency = [[0] * size for _ in range(size)]
    measured: list[tuple[int, int]] = []
    for a in range(size):
        for b in range(size):
            if a == b:
                continue
            both_ends = min(reported.direct[a][b], reported.direct[b][a])
            through_switch = min(reported.switched[a], reported.switched[b])
            nvlink[a][b] = both_ends + through_switch
            ancestor = machine.pcie_ancestors[a][b] or PcieAncestor.SYSTEM
            bandwidth[a][b] = max(nvlink[a][b], PCIE_GB_PER_S[ancestor])
            known = machine.measured_latency_ns[a][b] if machine.measured_latency_ns else None
            if known is not None:
                latency[a][b] = known
                measured.append((a, b))
            elif both_ends:
                latency[a][b] = NVLINK_LATENCY_NS
            elif through_switch:
                latency[a][b] = NVSWITCH_LATENCY_NS
            else:
                latency[a][b] = PCIE_LATENCY_NS[ancestor]
    return AffinityGraph(
        nvlink=tuple(map(tuple, nvlink)),
        bandwidth=tuple(map(tuple, bandwidth)),
        latency=tuple(map(tuple, latency)),
        numa=tuple(gpu.numa_node for gpu in machine.gpus),
        degraded=tuple(place for place, gpu in enumerate(machine.gpus) if gpu.degraded),
        measured=tuple(measured),
    )


def link_bandwidth(link: NvLink) -> int:
    """Return the nominal bandwidth of one link, one direction, in GB/s."""
    return NVLINK_GB_PER_S.get(link.version, UNKNOWN_NVLINK_GB_PER_S)
