"""Which version a request gets that names none."""

import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp2026.runtime.model.traffic import TrafficTable

WEIGHTS = [{"a": 100}, {"a": 90, "b": 10}, {"a": 1, "b": 99}, {"a": 33, "b": 33, "c": 34}, {"a": 0, "b": 100}]


@st.composite
def weights_of(draw: st.DrawFn) -> dict[str, int]:
    cuts = sorted(draw(st.lists(st.integers(0, 100), min_size=0, max_size=15)))
    parts = [after - before for before, after in zip([0, *cuts], [*cuts, 100], strict=True)]
    return {f"v{number}": part for number, part in enumerate(parts)}


@pytest.mark.parametrize("weights", WEIGHTS)
def test_each_deck_of_a_hundred_requests_has_exact_shares(weights: dict[str, int]) -> None:
    table = TrafficTable(weights)
    for _ in range(5):
        assert Counter(table.choose() for _ in range(100)) == {k: v for k, v in weights.items() if v}


@settings(max_examples=20, deadline=None)
@given(weights_of(), st.integers(0, 99))
def test_ten_thousand_requests_from_anywhere_are_within_one_percent(
    weights: dict[str, int], skip: int
) -> None:
    table = TrafficTable(weights)
    for _ in range(skip):
        table.choose()
    seen = Counter(table.choose() for _ in range(10_000))
    assert all(abs(seen[version_id] - 100 * weight) <= 100 for version_id, weight in weights.items())


def test_a_client_that_comes_every_tenth_request_meets_the_canary() -> None:
    table = TrafficTable({"stable": 90, "canary": 10}, Random(1).shuffle)
    chosen = [table.choose() for _ in range(10_000)]
    for phase in range(10):
        assert 50 < chosen[phase::10].count("canary") < 150


@given(weights_of(), st.binary(max_size=50))
def test_a_sticky_key_has_one_version_everywhere_and_never_one_without_weight(
    weights: dict[str, int], key: bytes
) -> None:
    version_id = TrafficTable(weights).choose_for(key)
    assert weights[version_id] > 0
    backwards = dict(reversed(weights.items()))
    assert TrafficTable(backwards).choose_for(key) == version_id


@pytest.mark.parametrize("weights", WEIGHTS)
def test_sticky_keys_are_split_by_weight(weights: dict[str, int]) -> None:
    table = TrafficTable(weights)
    seen = Counter(table.choose_for(b"user-%d" % number) for number in range(10_000))
    for version_id, weight in weights.items():
        share = weight / 100
        assert abs(seen[version_id] - 10_000 * share) <= 4 * math.sqrt(10_000 * share * (1 - share))


@given(weights_of(), st.integers(0, 15), st.binary(min_size=1, max_size=16))
def test_when_a_weight_grows_keys_only_move_towards_it(
    weights: dict[str, int], pick: int, key: bytes
) -> None:
    grown = f"v{pick % len(weights)}"
    before = TrafficTable(weights).choose_for(key)
    after = TrafficTable({**weights, grown: weights[grown] + 20}).choose_for(key)
    assert after in (before, grown)
