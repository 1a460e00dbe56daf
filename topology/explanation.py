"""Why did this set win? The band that decided, the best set that lost, and how many are as good."""

from dataclasses import dataclass
from itertools import combinations
from math import comb

from mcp2026.topology.affinity import AffinityGraph, affinity_graph
from mcp2026.topology.bands import Choice, Score
from mcp2026.topology.score import score_gpu_set
from mcp2026.topology.search import MOST_SETS
from mcp2026.topology.snapshot import PlacementSnapshot


@dataclass(frozen=True, slots=True)
class Explanation:
    """The choice; the best set that scores less, with its score, and the first band in which it does.

    `runner_up` and `decided_by` are empty where all sets score equally, or are too many to be compared
    (`compared` is False). `equals` counts other sets that score as the choice does, the lowest of them.
    """

    choice: Choice
    runner_up: tuple[int, ...] = ()
    runner_up_score: Score | None = None
    decided_by: str = ""
    equals: int = 0
    compared: bool = True


def explain(snapshot: PlacementSnapshot) -> Explanation:
    """Answer the question and compare all sets with the answer, which takes up to a second.

    Raises:
        NoSuchSetError: fewer GPUs are free than asked for, or more must be included.

    """
    graph = affinity_graph(snapshot.machine)
    choice = snapshot.answer()
    required = frozenset(snapshot.must_include)
    candidates = sorted(set(snapshot.free) - required)
    missing = snapshot.size - len(required)
    if comb(len(candidates), missing) > MOST_SETS:
        return Explanation(choice, compared=False)
    best: Score | None = None
    members: tuple[int, ...] = ()
    equals = 0
    for added in combinations(candidates, missing):
        other = tuple(sorted(required.union(added)))
        score = _score(graph, snapshot, other)
        if score.key == choice.score.key:
            equals += 1
        elif best is None or score.key > best.key:
            best, members = score, other
    if best is None:
        return Explanation(choice, equals=equals - 1)
    decided_by = next(
        term.name
        for term, lost in zip(choice.score.terms, best.terms, strict=True)
        if term.value != lost.value
    )
    return Explanation(choice, members, best, decided_by, equals - 1)


def _score(graph: AffinityGraph, snapshot: PlacementSnapshot, members: tuple[int, ...]) -> Score:
    free = {*snapshot.free, *snapshot.must_include}
    return score_gpu_set(graph, members, free, snapshot.circumstances)
