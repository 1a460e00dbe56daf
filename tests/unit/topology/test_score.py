"""The scorer finds the best set on every machine, and says why it is the best."""

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mcp2026.topology.affinity import AffinityGraph, affinity_graph
from mcp2026.topology.errors import NoSuchSetError
from mcp2026.topology.machine import machine_from_file
from mcp2026.topology.score import Choice, best_gpu_set, score_gpu_set

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


def brute_force(graph: AffinityGraph, free: list[int], size: int, required: list[int]) -> tuple[int, ...]:
    """Written anew from the description: bands from the highest, ties to the lowest positions."""

    def rank(members: tuple[int, ...]) -> tuple[int, int, int, int]:
        inside = [graph.bandwidth[a][b] for a in members for b in members if a < b]
        left = [gpu for gpu in {*free, *required} if gpu not in members]
        whole = sum(graph.nvlink[a][b] for a in left for b in left) // 2
        return min(inside, default=0), sum(inside), -len({graph.numa[gpu] for gpu in members}), whole

    pool = sorted({*free, *required})
    sets = [members for members in combinations(pool, size) if set(required) <= set(members)]
    best = max(map(rank, sets))
    return min(members for members in sets if rank(members) == best)


@settings(deadline=None, max_examples=300)
@given(graphs(), st.data())
def test_it_is_what_trying_everything_finds(graph: AffinityGraph, data: st.DataObject) -> None:
    places = st.lists(st.sampled_from(range(len(graph))), unique=True)
    free, required = data.draw(places), data.draw(places)
    pool = {*free, *required}
    assume(pool)
    size = data.draw(st.integers(max(1, len(required)), len(pool)))
    assert best_gpu_set(graph, free, size, required).gpus == brute_force(graph, free, size, required)


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
        assert other.terms[0].value <= best.score.terms[0].value


def test_the_explanation_names_all_terms_with_units() -> None:
    choice = best_gpu_set(graph("4xa100-pcie-nvlink-pairs"), range(4), 2)
    assert (
        str(choice.score) == "weakest-link 300 GB/s, total-links 300 GB/s, numa-nodes -1, split-nvlink 0 GB/s"
    )
    assert choice.score.key == (300, 300, -1, 0)


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
