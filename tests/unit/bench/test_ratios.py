"""Medians over rounds, ratios of paired rounds, and the best peer: the fastest other under one load."""

import pytest

from bench.client.load import LoadResult
from bench.ratios import paired_ratio, rows
from bench.results import Cell


def result(rate: float, p50: float = 1.0, p99: float = 2.0, errors: int = 0) -> LoadResult:
    return LoadResult(rate, p50, p99, errors, 1000)


def cell(server: str, concurrency: int = 8, protocol: str = "json") -> Cell:
    return Cell("mlp", protocol, concurrency, server)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        pytest.param({0: 100.0, 1: 50.0}, {0: 200.0, 1: 100.0}, 0.5, id="both slow down alike: no change"),
        pytest.param({0: 1.0, 1: 2.0, 2: 9.0}, {0: 1.0, 1: 1.0, 2: 1.0}, 2.0, id="the median of the ratios"),
        pytest.param({0: 1.0, 1: 4.0}, {1: 2.0, 2: 8.0}, 2.0, id="only rounds that both have"),
        pytest.param({0: 1.0}, {1: 1.0}, None, id="no common round"),
        pytest.param({0: 1.0}, {0: 0.0}, None, id="a reference that gave nothing"),
    ],
)
def test_ratios_pair_the_rounds(
    ours: dict[int, float], theirs: dict[int, float], expected: float | None
) -> None:
    ratio = paired_ratio(
        {number: result(rate) for number, rate in ours.items()},
        {number: result(rate) for number, rate in theirs.items()},
    )
    assert ratio == expected


def test_a_row_has_medians_extremes_and_the_sum_of_errors() -> None:
    (row,) = rows({cell("bare"): {0: result(30, 3, 9, 1), 1: result(10, 1, 7), 2: result(20, 2, 8, 4)}})
    assert (row.rounds, row.rate, row.lowest, row.highest) == (3, 20, 10, 30)
    assert (row.p50_ms, row.p99_ms, row.errors) == (2, 8, 5)
    assert row.spread == 1.0


def test_ratios_are_to_raw_to_bare_and_to_the_best_peer_under_the_same_load() -> None:
    found = rows(
        {
            cell("mcp2026"): {0: result(40)},
            cell("raw"): {0: result(80)},
            cell("bare"): {0: result(50)},
            cell("triton"): {0: result(10)},
            cell("mlserver"): {0: result(5)},
            cell("kserve", concurrency=64): {0: result(1000)},
            cell("kserve", protocol="grpc"): {0: result(1000)},
        }
    )
    ours = found[0]
    assert (ours.to_raw, ours.to_bare, ours.to_best_peer, ours.best_peer) == (0.5, 0.8, 4.0, "triton")


def test_the_best_peer_and_the_ceilings_have_no_ratio_to_themselves() -> None:
    found = {
        row.cell.server: row
        for row in rows(
            {cell("bare"): {0: result(50)}, cell("raw"): {0: result(80)}, cell("triton"): {0: result(10)}}
        )
    }
    assert found["triton"].to_best_peer is None
    assert found["bare"].to_bare is None
    assert found["raw"].to_raw is None


def test_another_checkout_of_ours_is_no_peer() -> None:
    found = rows({cell("mcp2026"): {0: result(1)}, cell("mcp2026@/else/where"): {0: result(9)}})
    assert {row.best_peer for row in found} == {None}
