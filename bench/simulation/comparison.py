"""The runs behind the tables of placement: each policy on the same jobs, over seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.simulation.cluster import live
from bench.simulation.figures import Figures, figures_of
from bench.simulation.fleet import Node, fleet_of
from bench.simulation.jobs import Job
from bench.simulation.policies import Policy, plain_policies
from bench.simulation.product import ProductPolicy
from bench.simulation.traces import Description, synthetic

SCENARIOS = Path(__file__).parent / "scenarios"


def shipped_scenarios() -> tuple[Path, ...]:
    """Return the descriptions that come with the simulation."""
    return tuple(sorted(SCENARIOS.glob("*.yaml")))


def compare_policies(described: Description, seeds: Sequence[int]) -> Mapping[str, Sequence[Figures]]:
    """Run each policy on the jobs of each seed; return its figures by seed."""
    fleet = fleet_of(described.machines)
    gpus = sum(map(len, fleet))
    return _compare(fleet, [synthetic(described, gpus, seed) for seed in seeds])


def compare_on_trace(described: Description, jobs: Sequence[Job]) -> Mapping[str, Sequence[Figures]]:
    """Run each policy on `jobs`, on the machines of `described`."""
    return _compare(fleet_of(described.machines), [jobs])


def _compare(fleet: tuple[Node, ...], traces: Sequence[Sequence[Job]]) -> Mapping[str, Sequence[Figures]]:
    figures: dict[str, list[Figures]] = {}
    for jobs in traces:
        policies: tuple[Policy, ...] = (*plain_policies(fleet), ProductPolicy(fleet))
        for policy in policies:
            figures.setdefault(policy.name, []).append(figures_of(fleet, live(fleet, jobs, policy)))
    return figures
