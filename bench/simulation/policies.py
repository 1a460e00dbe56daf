"""Who chooses node and GPUs: the usual policies, written plainly after their public descriptions.

No code of others is copied, and what is a mistake there is none here: NVIDIA's best-effort policy may give
too few GPUs where their number does not divide the free ones, ours of its kind does not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.simulation.fleet import Node
from bench.simulation.jobs import Job
from bench.simulation.pair_scores import best_effort_set, best_summed_set


@dataclass(frozen=True, slots=True)
class Placement:
    """GPUs, as a bitmask, of the node at a position in the fleet."""

    node: int
    gpus: int


class Policy(Protocol):
    """Chooses for one job after the other. It may keep an account of its own; the simulator checks it."""

    @property
    def name(self) -> str:
        """For tables."""

    def place(self, job: Job, free: Sequence[int]) -> Placement | None:
        """Return where `job` goes, `free` being the free GPUs of each node; None where it fits nowhere."""

    def ended(self, job: Job) -> None:
        """Take note that `job` holds its GPUs no longer."""


NodeKey = Callable[[Node, int], float]
"""The node with the lowest is taken, of equal ones the first. From the node and its free GPUs."""
GpuChoice = Callable[[Node, int, int], int]
"""From the node, its free GPUs and a size at most their number."""


@dataclass(frozen=True, slots=True)
class PlainPolicy:
    """First a node by one rule, then GPUs on it by another."""

    name: str
    fleet: tuple[Node, ...]
    node_key: NodeKey
    choose: GpuChoice

    def place(self, job: Job, free: Sequence[int]) -> Placement | None:
        """Choose among the nodes with enough free GPUs."""
        fitting = [place for place, gpus in enumerate(free) if gpus.bit_count() >= job.gpus]
        if not fitting:
            return None
        place = min(fitting, key=lambda each: self.node_key(self.fleet[each], free[each]))
        return Placement(place, self.choose(self.fleet[place], free[place], job.gpus))

    def ended(self, job: Job) -> None:
        """Nothing is kept."""


def plain_policies(fleet: tuple[Node, ...]) -> tuple[PlainPolicy, ...]:
    """Return all that are compared with."""
    return (
        PlainPolicy("first fit", fleet, _any_node, _lowest),
        PlainPolicy("best fit", fleet, _free_gpus, _lowest),
        PlainPolicy("NVIDIA-like, spread", fleet, _least_allocated, best_effort_set),
        PlainPolicy("NVIDIA-like, pack", fleet, _most_allocated, best_effort_set),
        PlainPolicy("HAMi-like", fleet, _most_allocated, best_summed_set),
    )


def _any_node(_: Node, __: int) -> float:
    return 0


def _free_gpus(_: Node, free: int) -> float:
    return free.bit_count()


def _most_allocated(node: Node, free: int) -> float:
    """kube-scheduler's MostAllocated, over GPUs alone; also HAMi's node policy `binpack`."""
    return free.bit_count() / len(node)


def _least_allocated(node: Node, free: int) -> float:
    """kube-scheduler's LeastAllocated, over GPUs alone."""
    return -free.bit_count() / len(node)


def _lowest(_: Node, free: int, size: int) -> int:
    taken = 0
    for _turn in range(size):
        taken |= (free & ~taken) & -(free & ~taken)
    return taken
