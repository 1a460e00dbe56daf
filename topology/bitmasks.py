"""Sets of GPUs as bitmasks: bit i stands for the GPU at position i of the machine."""

from collections.abc import Iterable, Iterator


def mask_of(positions: Iterable[int]) -> int:
    """Return the set of `positions`, each at least 0."""
    mask = 0
    for position in positions:
        mask |= 1 << position
    return mask


def positions_of(mask: int) -> Iterator[int]:
    """Yield the positions in `mask`, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
