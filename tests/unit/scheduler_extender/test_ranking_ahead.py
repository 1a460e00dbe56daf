"""A ranking that is begun before it is asked for: only for the very question that comes next."""

import asyncio
import json

import pytest

from mcp2026.scheduler_extender.ranking_ahead import AHEAD_SECONDS, RankingAhead, next_body

POD = {"metadata": {"name": "p", "annotations": {"note": '"NodeNames":["x"]'}}}


def body(*names: str) -> bytes:
    """As Go writes it."""
    return json.dumps({"Pod": POD, "Nodes": None, "NodeNames": names}, separators=(",", ":")).encode()


def test_the_next_question_has_the_nodes_that_filter_let_through() -> None:
    assert next_body(body("a", "b", "c"), ("a", "c")) == body("a", "c")


def test_nothing_is_expected_where_whole_nodes_were_sent() -> None:
    assert next_body(b'{"Pod":{},"Nodes":{"items":[]}}', ("a",)) is None


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def ranking() -> str:
    return "ranked"


@pytest.mark.parametrize(
    ("asked", "later", "found"),
    [
        pytest.param(body("a", "b"), 0.0, True, id="the expected question finds its ranking"),
        pytest.param(body("b", "a"), 0.0, False, id="another order is another question"),
        pytest.param(body("a", "b"), AHEAD_SECONDS + 0.1, False, id="the cluster may be another one by now"),
    ],
)
async def test_only_the_expected_question_finds_it(asked: bytes, later: float, found: bool) -> None:
    clock = Clock()
    ahead: RankingAhead[str] = RankingAhead(clock)
    ahead.begin(body("a", "b", "c"), ("a", "b"), ranking)
    clock.now = later
    task = ahead.take(asked)
    assert (task is not None) == found
    if task is not None:
        assert await task == "ranked"


async def test_it_is_found_once() -> None:
    ahead: RankingAhead[str] = RankingAhead(Clock())
    ahead.begin(body("a", "b"), ("a", "b"), ranking)
    assert ahead.take(body("a", "b")) is not None
    assert ahead.take(body("a", "b")) is None


async def test_one_that_fails_fails_for_who_asks_and_for_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken() -> str:
        raise ValueError("no room")

    ahead: RankingAhead[str] = RankingAhead(Clock())
    ahead.begin(body("a", "b"), ("a", "b"), broken)
    asked = ahead.take(body("a", "b"))
    ahead.begin(body("a", "b"), ("a", "b"), broken)  # and nobody asks for this one
    assert asked is not None
    with pytest.raises(ValueError, match="no room"):
        await asked
    await asyncio.sleep(0)
    assert not caplog.records
