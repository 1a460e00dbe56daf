"""The search finds what trying everything finds: on every fixture, and on 10,000 machines made at random."""

from itertools import combinations
from pathlib import Path
from random import Random

import pytest

from mcp2026.topology.affinity import AffinityGraph, affinity_graph
from mcp2026.topology.bands import bands_of
from mcp2026.topology.demand import DemandMix
from mcp2026.topology.machine import machine_from_file
from mcp2026.topology.score import Circumstances, best_gpu_set, prepare, score_gpu_set
from mcp2026.topology.search import MOST_SETS, _machine_sets, count_sets
from tests.unit.topology.reference import Reference, random_machine

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
FIXTURES = sorted(TOPOLOGIES.glob("*.yaml"))
RANDOM_GRAPHS = 10_000
PARTS = 8
"""So that several processes can share the work."""


def _check(
    graph: AffinityGraph, reference: Reference, circumstances: Circumstances, random: Random, size: int
) -> None:
    free = random.sample(range(len(graph)), random.randint(1, len(graph)))
    required = random.sample(free, random.choice([0, 0, 0, 1, 2]) % (len(free) + 1))
    asked = random.randint(max(1, len(required)), len(free)) if size == 0 else min(size, len(free))
    choice = best_gpu_set(graph, free, asked, required[:asked], circumstances)
    expected = reference.best(free, asked, required[:asked])
    assert choice.gpus == expected, (graph, circumstances, sorted(free), asked, required)
    assert choice.score.key == reference.bands(expected, frozenset(free))
    assert choice.exact


def _circumstances(random: Random, size: int) -> tuple[Circumstances, dict[int, int]]:
    mix = random.choice([{1: 40, 2: 30, 4: 20, 8: 10}, {2: 100}, {1: 100}, {3: 50, 4: 50}])
    known = random.random() < 0.5
    return Circumstances(
        tenants=tuple(random.choice([0, 0, 1, 3]) for _ in range(size)) if known else (),
        headroom_us=tuple(random.choice([None, 50, -5, -9]) for _ in range(size))
        if random.random() < 0.3
        else (),
        degraded=tuple(gpu for gpu in range(size) if random.random() < 0.1) if known else (),
        mix=DemandMix.of(mix),
    ), mix


@pytest.mark.parametrize("part", range(PARTS))
def test_on_machines_made_at_random(part: int) -> None:
    random = Random(part)
    for _ in range(RANDOM_GRAPHS // PARTS):
        size = random.choice([1, 2, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 7, 8])
        graph = affinity_graph(random_machine(random, size))
        circumstances, mix = _circumstances(random, size)
        reference = Reference(
            graph, circumstances.tenants, circumstances.headroom_us, circumstances.degraded, mix
        )
        _check(graph, reference, circumstances, random, 0)


@pytest.mark.parametrize("seed", range(12))
def test_on_large_machines_made_at_random(seed: int) -> None:
    random = Random(1_000 + seed)
    size = random.randint(9, 16)
    graph = affinity_graph(random_machine(random, size))
    circumstances, mix = _circumstances(random, size)
    reference = Reference(
        graph, circumstances.tenants, circumstances.headroom_us, circumstances.degraded, mix
    )
    _check(graph, reference, circumstances, random, random.choice([1, 2, 3, 4]))


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_on_every_fixture(path: Path) -> None:
    graph = affinity_graph(machine_from_file(path))
    reference = Reference(graph)
    random = Random(path.stem)
    everything = tuple(range(len(graph)))
    questions = [(everything, size) for size in (1, 2, 4, 8) if size <= len(graph) <= 8 or size <= 2]
    questions += [
        (tuple(sorted(random.sample(everything, free))), random.randint(1, min(free, 4)))
        for free in range(1, min(len(graph), 12) + 1)
    ]
    for free, size in questions:
        if size <= len(free):
            choice = best_gpu_set(graph, free, size)
            assert choice.gpus == reference.best(free, size), (free, size)


@pytest.mark.parametrize("size", [4, 8])
def test_of_sixteen_gpus(size: int) -> None:
    """All sets of a size out of 16: the scorer's own key, as the reference would take long."""
    graph = affinity_graph(machine_from_file(TOPOLOGIES / "dgx-2-16xv100.yaml"))
    rng = Random(size)
    sample = [tuple(sorted(rng.sample(range(16), size))) for _ in range(300)]
    best = best_gpu_set(graph, range(16), size)
    for members in sample:
        key = score_gpu_set(graph, members, range(16)).key
        assert key <= best.score.key
        if key == best.score.key:
            assert best.gpus <= members


def test_twins_are_those_whose_exchange_changes_nothing() -> None:
    def twins(name: str) -> tuple[tuple[int, ...], ...]:
        return bands_of(affinity_graph(machine_from_file(TOPOLOGIES / f"{name}.yaml"))).twins

    assert twins("dgx-2-16xv100") == (tuple(range(8)), tuple(range(8, 16)))
    assert twins("8xa100-pcie-nv12-pairs-all-sys") == ((0, 2), (1, 3), (4, 5), (6, 7))
    assert twins("dgx-1v-8xv100") == tuple((gpu,) for gpu in range(8))
    assert twins("hgx-b200-8gpu-one-off-fabric") == ((0, 1, 3), (2,), (4, 5, 6, 7))


def test_gpus_that_are_each_alone_in_a_numa_node_are_twins_too() -> None:
    matrix = tuple(tuple(10 if a != b else 0 for b in range(16)) for a in range(16))
    assert bands_of(AffinityGraph(matrix, matrix, matrix, tuple(range(16)))).twins == (tuple(range(16)),)


@pytest.mark.parametrize(
    ("classes", "size"), [((8, 8), 8), ((1,) * 16, 8), ((2, 2, 2), 3), ((3,), 4), ((), 0)]
)
def test_different_sets_are_counted(classes: tuple[int, ...], size: int) -> None:
    gpus = [(kind, twin) for kind, twins in enumerate(classes) for twin in range(twins)]
    counts = {tuple(sorted(kind for kind, _ in members)) for members in combinations(gpus, size)}
    assert count_sets(classes, size) == len(counts)


def test_sixteen_gpus_never_have_too_many_sets() -> None:
    assert max(count_sets((1,) * 16, size) for size in range(17)) == 12_870 <= MOST_SETS


def test_what_is_prepared_need_not_be_listed_when_it_is_asked_for() -> None:
    graph = affinity_graph(random_machine(Random(2_000), 12))
    prepare(graph, (0, 4, 99))
    before = _machine_sets.cache_info()
    best_gpu_set(graph, range(12), 4)
    after = _machine_sets.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)
