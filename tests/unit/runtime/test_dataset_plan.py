"""Which parts a run has, and what it does with what an earlier one left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.runtime.dataset.errors import (
    BatchError,
    InputRefusedError,
    ModelRefusedError,
    OutputRefusedError,
)
from mcp2026.runtime.dataset.plan import (
    MOST_ROWS,
    PART_BYTES,
    Found,
    Plan,
    Result,
    decide,
    parts_of,
    remaining,
    rows_for_part,
)

PLAN = Plan("i", "m", 100, 30, "npy")
RESULT = Result("i", "m", "npy", 100, 4_000, "o")
plans = st.builds(
    Plan,
    input_sha256=st.just("i"),
    model_sha256=st.just("m"),
    rows=st.integers(1, 200),
    rows_per_part=st.integers(1, 70),
    output_format=st.just("npy"),
)


@given(plans)
def test_parts_hold_every_row_once_in_order(plan: Plan) -> None:
    parts = parts_of(plan)
    assert [row for part in parts for row in range(part.first, part.end)] == list(range(plan.rows))
    assert [part.name for part in parts] == sorted({part.name for part in parts})
    assert all(part.rows == plan.rows_per_part for part in parts[:-1])


@given(plans, st.lists(st.integers(1, 20)))
def test_whatever_was_done_between_kills_no_part_is_done_twice(plan: Plan, kills: list[int]) -> None:
    done: set[str] = {"output.unfinished", "000000000000-99999"}  # what is no part of this plan
    written: list[str] = []
    for parts_before_the_kill in [*kills, plan.rows]:
        now = [part.name for part in remaining(plan, done)[:parts_before_the_kill]]
        written += now
        done |= set(now)
    assert written == [part.name for part in parts_of(plan)]


@given(st.integers(0, 10**10), st.integers(1, 4_096))
def test_a_part_has_whole_batches_and_a_bounded_size(row_bytes: int, batch: int) -> None:
    rows = rows_for_part(row_bytes, batch)
    assert rows % batch == 0
    assert rows == batch or (rows <= MOST_ROWS and rows * row_bytes <= PART_BYTES)


def replaced(**changes: object) -> Plan:
    return Plan(**{name: changes.get(name, getattr(PLAN, name)) for name in PLAN.__struct_fields__})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(Found(None, None, None), "begin", id="nothing is there"),
        pytest.param(Found(PLAN, None, None), "resume", id="a run was stopped"),
        pytest.param(Found(PLAN, None, 4_000), "resume", id="a run was killed after the output got its name"),
        pytest.param(
            Found(replaced(rows_per_part=7), None, None), "resume", id="parts of another size will do"
        ),
        pytest.param(
            Found(PLAN, RESULT, 4_000), "finished", id="a run was killed while it removed its parts"
        ),
        pytest.param(Found(None, RESULT, 4_000), "finished", id="it was done before"),
        pytest.param(Found(None, RESULT, None), "begin", id="somebody took the output away"),
    ],
)
def test_a_run_goes_on_from_what_it_finds(found: Found, expected: str) -> None:
    assert decide(PLAN, found, fixed_rows_per_part=False, restart=False) == expected
    assert decide(PLAN, found, fixed_rows_per_part=False, restart=True) == "begin"


@pytest.mark.parametrize(
    ("wanted", "found", "refusal"),
    [
        pytest.param(
            replaced(input_sha256="j"),
            Found(PLAN, None, None),
            InputRefusedError,
            id="parts of another input",
        ),
        pytest.param(
            replaced(model_sha256="n"),
            Found(PLAN, None, None),
            ModelRefusedError,
            id="parts of another model",
        ),
        pytest.param(
            replaced(output_format="npz"),
            Found(PLAN, None, None),
            OutputRefusedError,
            id="parts in another format",
        ),
        pytest.param(
            replaced(rows_per_part=7), Found(PLAN, None, None), OutputRefusedError, id="parts of another size"
        ),
        pytest.param(
            PLAN, Found(replaced(version=2), None, None), OutputRefusedError, id="parts of another release"
        ),
        pytest.param(
            replaced(input_sha256="j"),
            Found(None, RESULT, 4_000),
            InputRefusedError,
            id="output of another input",
        ),
        pytest.param(
            replaced(model_sha256="n"),
            Found(None, RESULT, 4_000),
            ModelRefusedError,
            id="output of another model",
        ),
        pytest.param(PLAN, Found(None, RESULT, 4_001), OutputRefusedError, id="an output that was changed"),
        pytest.param(PLAN, Found(None, None, 4_000), OutputRefusedError, id="an output that nobody recorded"),
    ],
)
def test_what_is_not_the_same_work_is_refused_and_can_be_begun_anew(
    wanted: Plan, found: Found, refusal: type[BatchError]
) -> None:
    with pytest.raises(refusal, match="--restart"):
        decide(wanted, found, fixed_rows_per_part=True, restart=False)
    assert decide(wanted, found, fixed_rows_per_part=True, restart=True) == "begin"
