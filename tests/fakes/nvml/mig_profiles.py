"""The MIG profiles of products, with the sizes and placements that drivers tell.

A100 and H100: `nvidia-smi mig -lgip` and `-lgipp`, as in NVIDIA's MIG user guide. H200, GH200 and Blackwell:
names from that guide; their memory is taken as eighths of the board's, and their placements as the H100's.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile: `index` is NVML_GPU_INSTANCE_PROFILE_…; `size` and `starts` are in memory slices."""

    index: int
    id: int
    slices: int
    most: int
    size: int
    memory_mib: int
    name: str
    starts: tuple[int, ...]


SHAPES = (
    # index, id, compute slices, at most, memory slices, starts, suffix
    (0x0, 19, 1, 7, 1, (0, 1, 2, 3, 4, 5, 6), ""),
    (0x7, 20, 1, 1, 1, (0, 1, 2, 3, 4, 5, 6), "+me"),
    (0x9, 15, 1, 4, 2, (0, 2, 4, 6), ""),
    (0x1, 14, 2, 3, 2, (0, 2, 4), ""),
    (0x2, 9, 3, 2, 4, (0, 4), ""),
    (0x3, 5, 4, 1, 4, (0,), ""),
    (0x4, 0, 7, 1, 8, (0,), ""),
)

NAMES_AND_MEMORY = {
    # product, least MiB of the board: GB in the names and MiB, for 1, 2, 4 and 8 memory slices
    ("A100", 60000): ((10, 20, 40, 80), (9856, 19968, 40192, 80384)),
    ("A100", 0): ((5, 10, 20, 40), (4864, 9856, 19968, 40192)),
    ("H100", 0): ((10, 20, 40, 80), (9856, 19968, 40192, 80384)),
    ("GH200", 0): ((12, 24, 48, 96), None),
    ("GB200", 0): ((24, 47, 95, 189), None),
    ("H200", 0): ((18, 35, 71, 141), None),
    ("B200", 0): ((23, 45, 90, 180), None),
}


def profiles_of(product: str, memory_mib: int) -> tuple[Profile, ...]:
    """Return the profiles of a board, none for a product that is not known."""
    for (name, least), (gigabytes, sizes) in NAMES_AND_MEMORY.items():
        if name in product and memory_mib >= least:
            in_mib = sizes or tuple(memory_mib * part // 8 for part in (1, 2, 4, 8))
            by_size = dict(zip((1, 2, 4, 8), zip(gigabytes, in_mib, strict=True), strict=True))
            return tuple(
                Profile(
                    index,
                    number,
                    slices,
                    most,
                    size,
                    by_size[size][1],
                    f"{slices}g.{by_size[size][0]}gb{suffix}",
                    starts,
                )
                for index, number, slices, most, size, starts, suffix in SHAPES
            )
    return ()
