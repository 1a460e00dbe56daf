"""How much of a GPU in mode MPS may one container have, and how many may there be? Pure."""

from dataclasses import dataclass

from mcp2026.api.gpu_sharing import MOST_MPS_CLIENTS, Sharing

MOST_MPS_CLIENTS_BEFORE_VOLTA = 16
"""Below compute capability 7.0. NVIDIA's own plugin compares with 7.5, which gives a V100 too few."""

MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True)
class MpsLimits:
    """What one process may use: percent of the threads, 1 to 100, and MiB of device memory.

    0 MiB stand for no limit: the driver does not tell how much there is.
    """

    thread_percentage: int
    memory_mib: int


def limits_of_units(sharing: Sharing, memory_mib: int, units: int) -> MpsLimits:
    """Return what a container may have that holds `units` of a GPU with `memory_mib` of memory.

    A unit is a share or 1 GiB, as `sharing` says. Rounded down, so that all containers together fit.
    """
    if sharing.unit == "Memory":
        whole = max(memory_mib // MIB_PER_GIB, 1)
        memory = min(units * MIB_PER_GIB, memory_mib)
    else:
        whole = sharing.shares
        memory = min(units * memory_mib // whole, memory_mib)
    return MpsLimits(min(max(100 * units // whole, 1), 100), memory)


def most_clients(compute_capability: tuple[int, int]) -> int:
    """Return how many processes an MPS server takes on a GPU of this compute capability."""
    return MOST_MPS_CLIENTS if compute_capability >= (7, 0) else MOST_MPS_CLIENTS_BEFORE_VOLTA
