"""What a lane learns: how long runs take, and whether the callers that it answered come back at once."""

import random
from itertools import pairwise

import pytest

from mcp2026.runtime.batching import CostModel
from mcp2026.runtime.batching.company import LONGEST_NS, Company
from tests.unit.runtime.simulated_engine import MS


def learned(*samples: tuple[int, float]) -> CostModel:
    cost = CostModel()
    for rows, run_ns in samples:
        cost.learn(rows, run_ns)
    return cost


def test_nothing_is_predicted_before_the_first_run() -> None:
    assert CostModel().predict(8) == 0


def test_one_run_is_enough_to_predict() -> None:
    assert learned((4, 20.0)).predict(4) == pytest.approx(20)
    assert learned((4, 20.0)).predict(8) == pytest.approx(40)  # no fixed cost until there is a sign of one


@pytest.mark.parametrize(("per_row", "fixed"), [(2, 8), (10, 0), (0, 5), (0.1, 40)])
def test_two_sizes_tell_the_fixed_cost(per_row: float, fixed: float) -> None:
    cost = learned(*((rows, per_row * rows + fixed) for rows in (1, 7, 1, 7)))
    assert cost.per_row == pytest.approx(per_row, abs=1e-6)
    assert cost.fixed == pytest.approx(fixed, abs=1e-6)
    assert cost.predict(32) == pytest.approx(32 * per_row + fixed, abs=1e-4)


@pytest.mark.parametrize("samples", [[(1, 10.0), (8, 5.0)], [(1, 1.0), (8, 80.0)]], ids=["falls", "below 0"])
def test_neither_part_is_ever_negative(samples: list[tuple[int, float]]) -> None:
    cost = learned(*samples * 5)
    assert cost.per_row >= 0
    assert cost.fixed >= 0


def test_an_odd_run_moves_little_and_a_change_is_followed() -> None:
    rng = random.Random(1)
    cost = learned(*((rows, rows * 10 + 20 + rng.uniform(-1, 1)) for rows in [1, 2, 4, 8] * 10))
    before = cost.predict(8)
    cost.learn(8, 5_000)
    assert cost.predict(8) < before * 1.3
    for rows in [1, 2, 4, 8] * 10:
        cost.learn(rows, rows * 20 + 40)
    assert cost.predict(8) == pytest.approx(200, rel=0.1)


@pytest.mark.parametrize(("budget", "rows"), [(7, 0), (8, 0), (10, 1), (25, 8), (1e9, 499_999_996)])
def test_rows_within_a_budget(budget: float, rows: int) -> None:
    assert learned(*((n, 2 * n + 8) for n in (1, 2, 8))).rows_within(budget) == rows


def test_what_is_known_of_the_fixed_cost_outlives_many_runs_of_one_size() -> None:
    rng = random.Random(1)
    cost = learned(*((rows, 2 * rows + 8) for rows in (1, 7, 1, 7)))
    for _ in range(1_000):
        cost.learn(8, 24 * rng.uniform(0.95, 1.05))
    assert cost.fixed == pytest.approx(8, rel=0.2)
    for _ in range(100):
        cost.learn(8, 48)
    assert cost.predict(8) == pytest.approx(48, rel=0.01)


def rounds(company: Company, answered: int, back: int, times: int, fixed_ns: float = 100 * MS) -> None:
    """Let `back` of `answered` rows return within the window, several times."""
    for number in range(times):
        company.answered(answered, 0, 200 * MS, fixed_ns, number * 200 * MS)
        company.arrived(back)


def test_nobody_is_waited_for_before_it_is_known_that_callers_come_back() -> None:
    company = Company()
    rounds(company, 8, 8, 3)
    assert company.target == 0


def test_callers_that_came_back_lately_are_waited_for_but_not_for_ever() -> None:
    company = Company()
    rounds(company, 8, 8, 20)
    company.answered(7, 1, 200 * MS, 100 * MS, 0)
    assert company.target == 8
    assert company.until == LONGEST_NS
    rounds(company, 8, 0, 2)
    assert company.target == 0


@pytest.mark.parametrize(
    ("fixed_ms", "callers", "missing", "waits"),
    [
        pytest.param(190, 32, 1, True, id="one in 32 may where nearly all is saved"),
        pytest.param(190, 8, 1, False, id="one in 8 may not: it is served last every time"),
        pytest.param(4, 32, 1, False, id="one in 32 may not where little is saved"),
    ],
)
def test_the_less_a_wait_saves_the_fewer_may_miss_it(
    fixed_ms: int, callers: int, missing: int, waits: bool
) -> None:
    company = Company()
    rounds(company, callers, callers, 40, fixed_ms * MS)
    assert company.target == callers
    rounds(company, callers, callers - missing, 20, fixed_ms * MS)
    assert (company.target > 0) is waits


def test_waits_that_turn_out_wrong_are_tried_more_and_more_rarely() -> None:
    company = Company()
    begun = []
    for number in range(2_000):
        before = company.target
        company.answered(8, 0, 200 * MS, 100 * MS, number * 200 * MS)
        if company.target and not before:
            begun.append(number)
        company.arrived(0 if company.target else 8)
    gaps = [later - earlier for earlier, later in pairwise(begun)]
    assert gaps == sorted(gaps)
    assert len(begun) <= 8


@pytest.mark.parametrize(
    ("run_ns", "fixed_ns", "window"),
    [
        pytest.param(20 * MS, 20 * MS, 10 * MS, id="half of what a shared run saves"),
        pytest.param(200 * MS, 100 * MS, LONGEST_NS, id="no longer than anybody notices"),
        pytest.param(MS // 12, MS // 12, 0, id="not at all for short runs"),
        pytest.param(200 * MS, 0, 0, id="not at all if nothing is saved"),
    ],
)
def test_a_wait_costs_less_than_it_saves(run_ns: float, fixed_ns: float, window: int) -> None:
    company = Company()
    rounds(company, 8, 8, 20)
    company.answered(8, 0, run_ns, fixed_ns, 0)
    assert company.until == window
