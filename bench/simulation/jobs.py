"""What is to be placed: pods that ask for whole GPUs, and what slow links cost them."""

from dataclasses import dataclass

REFERENCE_LINK_GB_PER_S = 300
"""Links over which a job's share of collectives is told: twelve NVLinks of an A100, one direction."""


@dataclass(frozen=True, slots=True)
class Job:
    """A pod that comes at `arrival_s` and asks for `gpus` whole GPUs of one machine.

    `duration_s` is how long it runs with links of `REFERENCE_LINK_GB_PER_S`. A *serving* job runs exactly so
    long, and misses its SLO if it is more than `slo_slowdown` times as slow as with such links; any other
    runs until its work is done. `collective_share`: of its time, with such links, in collectives. The
    greater `priority` goes first.
    """

    name: str
    arrival_s: float
    gpus: int
    duration_s: float
    priority: int = 0
    serving: bool = False
    collective_share: float = 0.0
    slo_slowdown: float = float("inf")

    def slowdown(self, weakest_link_gb_per_s: int) -> float:
        """Return how many times as long everything takes with links of that bandwidth; 1 for one GPU."""
        if self.gpus == 1:
            return 1.0
        share = self.collective_share
        return 1 - share + share * REFERENCE_LINK_GB_PER_S / weakest_link_gb_per_s

    def runs_for(self, weakest_link_gb_per_s: int) -> float:
        """Return for how many seconds it holds its GPUs."""
        return self.duration_s * (1.0 if self.serving else self.slowdown(weakest_link_gb_per_s))

    def misses(self, weakest_link_gb_per_s: int) -> bool:
        """Tell whether it is slower than promised."""
        return self.serving and self.slowdown(weakest_link_gb_per_s) > self.slo_slowdown
