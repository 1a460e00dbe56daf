"""Which nodes are handed on: the best, and of equal ones others for each pod."""

from hypothesis import given
from hypothesis import strategies as st

from mcp2026.scheduler_extender.narrowing import best_nodes
from mcp2026.scheduler_extender.prioritizing import Ranking


def ranking(*priorities: int) -> Ranking:
    names = tuple(f"n{number}" for number in range(len(priorities)))
    classes = tuple(str(priority) for priority in priorities)
    of_class = {str(priority): priority for priority in priorities}
    return Ranking(names, classes, of_class, dict.fromkeys(of_class))


def test_the_best_are_handed_on_in_the_order_in_which_they_were_asked_for() -> None:
    assert best_nodes(ranking(3, 10, 0, 7, 7), 3, "uid") == ("n1", "n3", "n4")


def test_few_nodes_are_all_handed_on() -> None:
    assert best_nodes(ranking(0, 10), 2, "uid") == ("n0", "n1")


def test_of_equal_nodes_each_has_its_turn() -> None:
    seen = {best_nodes(ranking(*[10] * 7), 2, f"uid-{number}") for number in range(200)}
    assert {name for names in seen for name in names} == {f"n{number}" for number in range(7)}


@given(st.lists(st.integers(0, 10), min_size=1, max_size=30), st.integers(1, 30), st.text(max_size=5))
def test_no_node_that_is_left_out_is_better_than_one_that_is_handed_on(
    priorities: list[int], most: int, uid: str
) -> None:
    nodes = ranking(*priorities)
    chosen = best_nodes(nodes, most, uid)
    of = dict(zip(nodes.nodes, priorities, strict=True))
    assert len(set(chosen)) == len(chosen) == min(most, len(priorities))
    assert list(chosen) == [name for name in nodes.nodes if name in set(chosen)]
    left_out = of.keys() - set(chosen)
    assert not left_out or max(of[name] for name in left_out) <= min(of[name] for name in chosen)
    assert best_nodes(nodes, most, uid) == chosen
