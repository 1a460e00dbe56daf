"""MIG profiles and the places that they can take on a GPU.

A GPU has 8 memory slices and 7 compute slices (A30: 4 and 4). A placement is ``start:size`` in memory slices.
Source: NVIDIA's Multi-Instance GPU user guide, `nvmlDeviceGetGpuInstancePossiblePlacements`.
"""

from dataclasses import dataclass

MEMORY_SLICES = 8
COMPUTE_SLICES = 7


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A kind of GPU instance that a GPU can be cut into.

    `profile_id` is the driver's number of it; `size` and the entries of `starts` are in memory slices,
    `compute_slices` of 7; `most` is how many of it a GPU can hold at once; `memory_mib` is in MiB.
    """

    name: str
    profile_id: int
    compute_slices: int
    size: int
    starts: tuple[int, ...]
    most: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A GPU instance with the one compute instance that fills it.

    `uuid` is that of the MIG device; `start` and `size` are in memory slices; `gpu_instance` and
    `compute_instance` are the driver's numbers of them.
    """

    uuid: str
    profile: str
    start: int
    size: int
    gpu_instance: int
    compute_instance: int
    memory_mib: int = 0

    @property
    def slices(self) -> int:
        """The memory slices that it takes, as a bitmask."""
        return ((1 << self.size) - 1) << self.start
