"""The MIG profiles of real GPUs, for use without a driver: planning from a file, tests, documentation.

With a driver, `Driver.mig_profiles` tells the same and more exactly. Names, compute slices, most and ids are
those of NVIDIA's Multi-Instance GPU user guide ("Supported MIG profiles", `nvidia-smi mig -lgip`); places are
its "possible placements", in memory slices. Memory in MiB is the driver's for A30 and A100, and the GB of the
name times 1,024 for the others, whose places are assumed to be those of H100.
"""

from dataclasses import dataclass

from mcp2026.topology.mig.geometry import COMPUTE_SLICES, MEMORY_SLICES, MigProfile

MIB_PER_GB = 1_024


@dataclass(frozen=True, slots=True)
class MigGeometry:
    """What one kind of GPU can be cut into. `product` is a part of the product's name as NVML gives it."""

    kind: str
    product: str
    least_memory_mib: int
    """Tells variants of one product apart."""
    memory_slices: int
    compute_slices: int
    profiles: tuple[MigProfile, ...]


def _seven(kind: str, product: str, least_memory_mib: int, *sizes: tuple[int, int]) -> MigGeometry:
    """Return the geometry of a GPU of seven compute slices.

    `sizes` are the GB in the name and the MiB of 1g, 1g with double memory, 2g, 3g, 4g and 7g.
    """
    one, double, two, three, four, seven = sizes
    shapes = (
        # name, id, compute, size, starts, most, MiB
        (f"1g.{one[0]}gb", 19, 1, 1, tuple(range(7)), 7, one[1]),
        (f"1g.{one[0]}gb+me", 20, 1, 1, tuple(range(7)), 1, one[1]),
        (f"1g.{double[0]}gb", 15, 1, 2, (0, 2, 4, 6), 4, double[1]),
        (f"2g.{two[0]}gb", 14, 2, 2, (0, 2, 4), 3, two[1]),
        (f"3g.{three[0]}gb", 9, 3, 4, (0, 4), 2, three[1]),
        (f"4g.{four[0]}gb", 5, 4, 4, (0,), 1, four[1]),
        (f"7g.{seven[0]}gb", 0, 7, 8, (0,), 1, seven[1]),
    )
    profiles = tuple(MigProfile(*shape) for shape in shapes)
    return MigGeometry(kind, product, least_memory_mib, MEMORY_SLICES, COMPUTE_SLICES, profiles)


def _by_name(kind: str, product: str, least_memory_mib: int, *gb: int) -> MigGeometry:
    return _seven(kind, product, least_memory_mib, *((size, size * MIB_PER_GB) for size in gb))


A30 = MigGeometry(
    "A30",
    "A30",
    0,
    4,
    4,
    (
        MigProfile("1g.6gb", 14, 1, 1, (0, 1, 2, 3), 4, 5_836),
        MigProfile("1g.6gb+me", 21, 1, 1, (0, 1, 2, 3), 1, 5_836),
        MigProfile("2g.12gb", 5, 2, 2, (0, 2), 2, 11_672),
        MigProfile("2g.12gb+me", 6, 2, 2, (0, 2), 1, 11_672),
        MigProfile("4g.24gb", 0, 4, 4, (0,), 1, 23_344),
    ),
)
A100_40 = _seven(
    "A100-40", "A100", 0, (5, 4_864), (10, 9_856), (10, 9_856), (20, 19_968), (20, 19_968), (40, 40_192)
)
A100_80 = _seven(
    "A100-80",
    "A100",
    60_000,
    (10, 9_856),
    (20, 19_968),
    (20, 19_968),
    (40, 40_192),
    (40, 40_192),
    (80, 80_384),
)
H100_80 = _by_name("H100-80", "H100", 0, 10, 20, 20, 40, 40, 80)
H200_141 = _by_name("H200-141", "H200", 0, 18, 35, 35, 71, 71, 141)
B200_180 = _by_name("B200-180", "B200", 0, 23, 45, 45, 90, 90, 180)
GH200_96 = _by_name("GH200-96", "GH200", 0, 12, 24, 24, 48, 48, 96)

GEOMETRIES = (A30, A100_80, A100_40, GH200_96, H100_80, H200_141, B200_180)
"""The first that fits a product is its geometry."""


def geometry_of(product: str, memory_mib: int) -> MigGeometry | None:
    """Return the geometry of the GPU `product` with so much memory; None if it is in no table.

    A table of another size of memory would have wrong names, so 94 GB of an H100 NVL are in none.
    """
    words = product.replace("-", " ").split()
    for geometry in GEOMETRIES:
        largest = max(profile.memory_mib for profile in geometry.profiles)
        if geometry.product in words and memory_mib >= geometry.least_memory_mib:
            return geometry if abs(memory_mib - largest) <= largest // 10 else None
    return None
