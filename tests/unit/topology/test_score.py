"""The scorer finds the best set on every machine, and says why it is the best."""

import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp2026.topology.affinity import AffinityGraph, affinity_graph
from mcp2026.topology.demand import DemandMix
from mcp2026.topology.errors import DemandMixError, NoSuchPositionError, NoSuchSetError
from mcp2026.topology.machine import machine_from_file
from mcp2026.topology.score import Choice, Circumstances, best_gpu_set, score_gpu_set

TOPOLOGIES = Path(__file__).parents[2] / "topologies"


def graph(name: str) -> AffinityGraph:
    return affinity_graph(machine_from_file(TOPOLOGIES / f"{name}.yaml"))


@pytest.mark.parametrize(
    ("name", "free", "size", "expected"),
    [
        pytest.param("1xgh200", (0,), 1, (0,), id="GH200: the only GPU"),
        pytest.param("1xt4-edge", (0,), 1, (0,), id="T4 at the edge: the only GPU"),
        pytest.param(
            "4xa100-pcie-half-bridged", (0, 1, 2, 3), 1, (2,), id="half-bridged: one, not of the bridged pair"
        ),
        pytest.param(
            "4xa100-pcie-half-bridged", (0, 1, 2, 3), 2, (0, 1), id="half-bridged: two, the bridged pair"
        ),
        pytest.param(
            "4xa100-pcie-half-bridged", (1, 2, 3), 2, (2, 3), id="half-bridged: else of one NUMA node"
        ),
        pytest.param(
            "4xa100-pcie-nvlink-pairs", (0, 2, 3), 1, (0,), id="pairs: one, where a partner is taken already"
        ),
        pytest.param(
            "4xa100-pcie-nvlink-pairs", (0, 2, 3), 2, (2, 3), id="pairs: two, the pair that is whole"
        ),
        pytest.param("4xgb200-nvl72-tray", (0, 1, 2, 3), 2, (0, 1), id="GB200: all equal, of one NUMA node"),
        pytest.param("4xgb200-nvl72-tray", (0, 2, 3), 2, (2, 3), id="GB200: of the NUMA node that has two"),
        pytest.param("4xl40s-pcie-2socket", (0, 2, 3), 2, (2, 3), id="four L40S: of one socket"),
        pytest.param(
            "8xl40s-pcie-2socket", (2, 3, 4, 5, 6, 7), 4, (4, 5, 6, 7), id="eight L40S: four of one socket"
        ),
        pytest.param("8xt4-pcie-2socket", (3, 4, 5), 2, (4, 5), id="eight T4: of one socket"),
        pytest.param(
            "8xrtx4090-pcie-all-sys", (3, 4, 5), 2, (4, 5), id="RTX 4090: all SYS, of one NUMA node"
        ),
        pytest.param("dgx-1v-8xv100", tuple(range(8)), 2, (0, 3), id="DGX-1: a doubly linked pair"),
        pytest.param(
            "dgx-1v-8xv100", tuple(range(8)), 4, (0, 1, 2, 3), id="DGX-1: four that are fully linked"
        ),
        pytest.param("dgx-1v-8xv100", (0, 1, 5), 2, (1, 5), id="DGX-1: two links across beat one inside"),
        pytest.param(
            "dgx-2-16xv100", tuple(range(16)), 8, tuple(range(8)), id="DGX-2: eight of one NUMA node"
        ),
        pytest.param(
            "dgx-a100-8xa100", (0, 2, 3, 6), 2, (2, 3), id="DGX A100: all on switches, of one NUMA node"
        ),
        pytest.param("hgx-h100-8gpu", (0, 1, 2, 7), 3, (0, 1, 2), id="H100: three of one NUMA node"),
        pytest.param(
            "hgx-b200-8gpu-one-off-fabric", (0, 1, 2), 2, (0, 1), id="B200: not the one off the fabric"
        ),
        pytest.param(
            "hgx-b200-8gpu-one-off-fabric", (2, 5, 6), 2, (5, 6), id="B200: nor where it comes first"
        ),
        pytest.param(
            "8xa100-pcie-nv12-pairs-all-sys",
            (0, 1, 4, 5, 6),
            3,
            (4, 5, 6),
            id="all-SYS pairs: a pair and a neighbour",
        ),
    ],
)
def test_the_best_set(name: str, free: tuple[int, ...], size: int, expected: tuple[int, ...]) -> None:
    assert best_gpu_set(graph(name), free, size).gpus == expected


def test_every_superset_of_a_linked_pair_gives_a_linked_pair() -> None:
    pairs = graph("8xa100-pcie-nv12-pairs-all-sys")
    linked = {pair for pair in combinations(range(8), 2) if pairs.nvlink[pair[0]][pair[1]]}
    assert len(linked) == 4
    for size in range(2, 9):
        for free in combinations(range(8), size):
            if any(set(pair) <= set(free) for pair in linked):
                assert best_gpu_set(pairs, free, 2).gpus in linked


@st.composite
def graphs(draw: st.DrawFn) -> AffinityGraph:
    size = draw(st.integers(1, 7))
    few = st.integers(0, 3)

    def symmetric(values: st.SearchStrategy[int]) -> tuple[tuple[int, ...], ...]:
        matrix = [[0] * size for _ in range(size)]
        for a, b in combinations(range(size), 2):
            matrix[a][b] = matrix[b][a] = draw(values)
        return tuple(map(tuple, matrix))

    nvlink, pcie = symmetric(few.map(lambda links: 25 * links)), symmetric(st.sampled_from([10, 16, 24]))
    bandwidth = tuple(tuple(map(max, *rows)) for rows in zip(nvlink, pcie, strict=True))
    numa = tuple(draw(st.lists(st.sampled_from([None, 0, 1]), min_size=size, max_size=size)))
    return AffinityGraph(nvlink, bandwidth, symmetric(st.integers(500, 3000)), numa)


@settings(deadline=None)
@given(graphs(), st.data())
def test_the_order_of_the_question_does_not_matter(graph: AffinityGraph, data: st.DataObject) -> None:
    free = data.draw(st.permutations(range(len(graph))))
    size = data.draw(st.integers(1, len(graph)))
    assert best_gpu_set(graph, free, size) == best_gpu_set(graph, sorted(free), size)


@settings(deadline=None)
@given(graphs(), st.data())
def test_the_score_of_the_choice_is_reproducible(graph: AffinityGraph, data: st.DataObject) -> None:
    free = data.draw(st.lists(st.sampled_from(range(len(graph))), unique=True, min_size=1))
    choice = best_gpu_set(graph, free, data.draw(st.integers(1, len(free))))
    assert score_gpu_set(graph, choice.gpus, free) == choice.score


def test_a_lower_band_never_flips_a_higher_one() -> None:
    """Taking GPUs 0 and 1 (a double link) breaks the most, and is still right for who needs two."""
    dgx = graph("dgx-1v-8xv100")
    best = best_gpu_set(dgx, range(8), 2)
    for pair in combinations(range(8), 2):
        other = score_gpu_set(dgx, pair, range(8))
        assert other.terms[2].value <= best.score.terms[2].value


def test_the_explanation_names_all_terms_with_units() -> None:
    choice = best_gpu_set(graph("4xa100-pcie-nvlink-pairs"), range(4), 2)
    assert str(choice.score) == (
        "weakest-link 300 GB/s, total-links 300 GB/s, numa-nodes -1, future-loss -92000 MB/s, "
        "split-nvlink 0 GB/s"
    )
    assert choice.score.key == (0, 0, 300, 300, 0, -1, -92_000, 0)


def test_what_a_caller_supplies_is_told_only_where_it_counts() -> None:
    circumstances = Circumstances(tenants=(1, 0, 0, 0), headroom_us=(-7, None, 5, 5), degraded=(0,))
    score = score_gpu_set(graph("4xa100-pcie-nvlink-pairs"), (0, 1), range(4), circumstances)
    assert str(score).startswith("slo-shortfall -7 µs, degraded-gpus -1, weakest-link")
    assert "neighbours -1, " in str(score)


@pytest.mark.parametrize(
    ("circumstances", "size", "expected"),
    [
        pytest.param(Circumstances(degraded=(0,)), 2, (2, 3), id="a pair without a degraded GPU"),
        pytest.param(Circumstances(degraded=(0, 2)), 2, (1, 3), id="two that are sound before a linked pair"),
        pytest.param(Circumstances(degraded=(0, 1, 2)), 2, (2, 3), id="as few degraded ones as can be"),
        pytest.param(
            Circumstances(degraded=(0, 1, 2, 3)), 2, (0, 1), id="degraded ones if there are no others"
        ),
        pytest.param(Circumstances(tenants=(1, 0, 0, 0)), 2, (2, 3), id="of equal pairs the quieter one"),
        pytest.param(Circumstances(tenants=(0, 5, 0, 0)), 3, (0, 2, 3), id="links before quiet"),
        pytest.param(Circumstances(headroom_us=(-1, 9, 0, None)), 2, (2, 3), id="not where a promise breaks"),
        pytest.param(
            Circumstances(headroom_us=(-9, 1, -3, -5)), 2, (1, 2), id="where a promise breaks, the least"
        ),
        pytest.param(
            Circumstances(headroom_us=(900, 900, 1, 1), tenants=(1, 0, 0, 0)),
            2,
            (2, 3),
            id="more headroom than is needed counts nothing",
        ),
        pytest.param(
            Circumstances(headroom_us=(-1, 0, 0, 0), degraded=(2,)), 2, (1, 3), id="a promise before health"
        ),
        pytest.param(
            Circumstances(headroom_us=(0, 0, -1, -1), degraded=(0, 1)),
            2,
            (0, 1),
            id="a degraded pair that keeps the promise before a sound one that breaks it",
        ),
    ],
)
def test_what_a_caller_knows_decides_in_its_band(
    circumstances: Circumstances, size: int, expected: tuple[int, ...]
) -> None:
    assert best_gpu_set(graph("4xa100-pcie-nvlink-pairs"), range(4), size, (), circumstances).gpus == expected


def test_a_gpu_that_the_machine_calls_degraded_is_taken_last() -> None:
    machine = machine_from_file(TOPOLOGIES / "hgx-h100-8gpu.yaml")
    hot = replace(machine, gpus=(replace(machine.gpus[0], degraded=True), *machine.gpus[1:]))
    assert best_gpu_set(affinity_graph(hot), range(8), 1).gpus == (1,)
    assert best_gpu_set(affinity_graph(hot), range(8), 8).gpus == tuple(range(8))


def test_the_mix_of_later_requests_decides_what_is_broken_up() -> None:
    """An island of four and one of two: whoever expects fours breaks the pair, and the other way round."""
    links = [[0] * 6 for _ in range(6)]
    for island in (range(4), range(4, 6)):
        for a in island:
            for b in island:
                links[a][b] = 300 if a != b else 0
    pcie = [[max(cell, 10) if a != b else 0 for b, cell in enumerate(row)] for a, row in enumerate(links)]
    islands = AffinityGraph(
        tuple(map(tuple, links)), tuple(map(tuple, pcie)), tuple(map(tuple, pcie)), (0,) * 6
    )
    fours, threes = Circumstances(mix=DemandMix.of({4: 100})), Circumstances(mix=DemandMix.of({3: 100}))
    assert best_gpu_set(islands, range(6), 1, (), fours).gpus == (4,)
    assert best_gpu_set(islands, range(6), 1, (), Circumstances()).gpus == (4,)
    assert best_gpu_set(islands, [0, 1, 2, 3, 4], 1, (), threes).gpus == (4,)


@pytest.mark.parametrize(
    ("mix", "problem"),
    [
        ({0: 100}, "size 0: allowed: at least 1"),
        ({1: 150, 2: -50}, "share -50 of size 2: allowed: at least 0"),
        ({2: 50}, "the shares sum to 50; allowed: 100"),
    ],
)
def test_a_mix_that_makes_no_sense_is_refused_by_field(mix: dict[int, int], problem: str) -> None:
    with pytest.raises(DemandMixError, match=re.escape(problem)):
        DemandMix.of(mix)


def test_an_odd_number_of_free_gpus_is_where_a_single_one_costs_least() -> None:
    """Of seven GPUs on NVSwitches three pairs remain, whichever goes; of eight, three of four remain."""
    h100 = graph("hgx-h100-8gpu")
    seven = best_gpu_set(h100, range(7), 1).score
    eight = best_gpu_set(h100, range(8), 1).score
    assert seven.key > eight.key


def test_64_gpus_that_are_much_alike_are_chosen_exactly() -> None:
    islands = _islands(64, 8)
    choice = best_gpu_set(islands, range(5, 64), 8)
    assert choice.exact
    assert choice.gpus == tuple(range(8, 16))


def test_64_gpus_that_all_differ_are_chosen_well_and_it_is_said() -> None:
    random = Random(64)
    cells = [[0] * 64 for _ in range(64)]
    for a, b in combinations(range(64), 2):
        cells[a][b] = cells[b][a] = random.randint(10, 40)
    planted = random.sample(range(64), 8)
    for a in planted:
        for b in planted:
            cells[a][b] = 300 if a != b else 0
    matrix = tuple(map(tuple, cells))
    choice = best_gpu_set(AffinityGraph(matrix, matrix, matrix, (0,) * 64), range(64), 8)
    assert not choice.exact
    assert choice.gpus == tuple(sorted(planted))


@pytest.mark.parametrize("required", [(), (3,), (3, 17, 20)])
def test_beyond_16_gpus_no_exchange_of_one_gpu_is_better(required: tuple[int, ...]) -> None:
    random = Random(20)
    cells = [[0] * 24 for _ in range(24)]
    for a, b in combinations(range(24), 2):
        cells[a][b] = cells[b][a] = random.choice([10, 16, 24, 300])
    matrix = tuple(map(tuple, cells))
    uneven = AffinityGraph(matrix, matrix, matrix, tuple(random.choice([0, 1]) for _ in range(24)))
    choice = best_gpu_set(uneven, range(24), 8, required)
    assert not choice.exact
    assert len(choice.gpus) == 8
    assert set(required) <= set(choice.gpus)
    for old in set(choice.gpus) - set(required):
        for new in set(range(24)) - set(choice.gpus):
            other = {*choice.gpus, new} - {old}
            assert score_gpu_set(uneven, other, range(24)).key <= choice.score.key


def test_few_free_gpus_of_many_are_chosen_exactly() -> None:
    random = Random(4)
    cells = [[0] * 40 for _ in range(40)]
    for a, b in combinations(range(40), 2):
        cells[a][b] = cells[b][a] = random.choice([10, 16, 24, 300])
    matrix = tuple(map(tuple, cells))
    uneven = AffinityGraph(matrix, matrix, matrix, (None,) * 40)
    free = random.sample(range(40), 9)
    choice = best_gpu_set(uneven, free, 5)
    assert choice.exact
    best = max(score_gpu_set(uneven, members, free).key for members in combinations(free, 5))
    assert choice.score.key == best


def _islands(size: int, of: int) -> AffinityGraph:
    matrix = tuple(
        tuple(0 if a == b else 300 if a // of == b // of else 10 for a in range(size)) for b in range(size)
    )
    return AffinityGraph(matrix, matrix, matrix, (0,) * size)


def test_what_must_be_included_is_free_though_it_is_not_listed() -> None:
    assert best_gpu_set(graph("4xa100-pcie-nvlink-pairs"), [0, 1, 2], 2, [3]).gpus == (2, 3)


def test_an_empty_set_is_one() -> None:
    choice = best_gpu_set(graph("4xl40s-pcie-2socket"), range(4), 0)
    assert isinstance(choice, Choice)
    assert choice.gpus == ()


@pytest.mark.parametrize(
    ("free", "size", "required"),
    [
        pytest.param([0, 1], 3, [], id="more than are free"),
        pytest.param([], 1, [], id="none is free"),
        pytest.param([0, 1], 1, [0, 1], id="fewer than must be included"),
        pytest.param([0], -1, [], id="a negative number"),
    ],
)
def test_a_set_that_does_not_exist_is_an_error_with_both_numbers(
    free: list[int], size: int, required: list[int]
) -> None:
    with pytest.raises(NoSuchSetError) as refused:
        best_gpu_set(graph("4xl40s-pcie-2socket"), free, size, required)
    assert refused.value.size == size
    assert refused.value.available == len({*free, *required})


@pytest.mark.parametrize(
    ("free", "must", "circumstances", "problem"),
    [
        ([0, 4], [], Circumstances(), "free: no position 4; the machine has 4 GPUs"),
        ([0, -1], [], Circumstances(), "free: no position -1"),
        ([0], [9], Circumstances(), "must_include: no position 9"),
        ([0], [], Circumstances(tenants=(1, 2)), "tenants: 2 values"),
        ([0], [], Circumstances(headroom_us=(1,) * 5), "headroom_us: 5 values"),
        ([0], [], Circumstances(degraded=(7,)), "degraded: no position 7"),
    ],
)
def test_positions_that_the_machine_has_not_are_refused_by_field(
    free: list[int], must: list[int], circumstances: Circumstances, problem: str
) -> None:
    with pytest.raises(NoSuchPositionError, match=re.escape(problem)):
        best_gpu_set(graph("4xl40s-pcie-2socket"), free, 1, must, circumstances)
    with pytest.raises(NoSuchPositionError, match=re.escape(problem.replace("must_include", "chosen"))):
        score_gpu_set(graph("4xl40s-pcie-2socket"), must, free, circumstances)
