"""Whole percent in given proportions."""

from collections.abc import Sequence


def shares(weights: Sequence[int], total: int) -> list[int]:
    """Split `total` in the proportion of `weights`, not all 0, into whole numbers that sum to it.

    What is left over after cutting down goes to the largest remainders, of equal ones to the first.
    """
    whole = sum(weights)
    cut = [weight * total // whole for weight in weights]
    remainders = [weight * total % whole for weight in weights]
    largest_first = sorted(range(len(weights)), key=lambda index: -remainders[index])
    for index in largest_first[: total - sum(cut)]:
        cut[index] += 1
    return cut
