"""From the text of `/metrics` to the numbers by which a canary is judged."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp2026.api.canary import Measured
from mcp2026.operator.canary.counts import Counts, measured, p95_ms, total
from mcp2026.operator.canary.exposition import UnreadableMetricsError, read_counts

INFINITY = float("inf")
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.1, 1.0, INFINITY)

PAGE = """\
# HELP mcp2026_requests_total Inference requests answered, by HTTP status.
# TYPE mcp2026_requests_total counter
mcp2026_requests_total{code="200",model="m",version="v1"} 90.0
mcp2026_requests_total{code="400",model="m",version="v1"} 7.0
mcp2026_requests_total{code="500",model="m",version="v1"} 3.0
mcp2026_requests_total{code="503",model="m",version="v1"} 2.0
mcp2026_requests_total{code="200",model="m",version="v2"} 1e+06
mcp2026_requests_total{code="503",model="m",version=""} 40.0
mcp2026_requests_total{code="200",model="other",version="v1"} 1.0
mcp2026_requests_total{code="404",model="",version=""} 8.0
# TYPE mcp2026_request_duration_seconds histogram
mcp2026_request_duration_seconds_bucket{le="0.001",model="m",version="v1"} 10.0
mcp2026_request_duration_seconds_bucket{le="0.01",model="m",version="v1"} 80.0
mcp2026_request_duration_seconds_bucket{le="+Inf",model="m",version="v1"} 90.0
mcp2026_request_duration_seconds_sum{model="m",version="v1"} 0.4
mcp2026_request_duration_seconds_count{model="m",version="v1"} 90.0
mcp2026_queue_duration_seconds_bucket{le="0.001",model="m",version="v1"} 5.0
mcp2026_queue_rows 0.0
"""


def test_a_page_tells_of_each_version_what_it_answered_and_where_the_server_failed() -> None:
    assert read_counts(PAGE, "m") == {
        "v1": Counts(95, 5, {0.001: 10, 0.01: 70, INFINITY: 10}),
        "v2": Counts(1_000_000, 0, {}),
    }
    assert read_counts(PAGE, "unknown") == read_counts("", "m") == {}


def test_names_with_quotes_and_backslashes_are_read_as_they_are() -> None:
    page = r'mcp2026_requests_total{code="200",model="a\"b\\c",version="v1"} 3.0' + "\n"
    assert read_counts(page, r'a"b\c')["v1"].requests == 3


def test_a_bucket_that_was_read_before_the_one_below_it_counts_nothing_twice() -> None:
    lines = [
        f'mcp2026_request_duration_seconds_bucket{{le="{le}",model="m",version="v"}} {up_to}\n'
        for le, up_to in (("0.001", 5), ("0.01", 4), ("+Inf", 7))
    ]
    assert read_counts("".join(lines), "m")["v"].answered == {0.001: 5, 0.01: 0, INFINITY: 2}


UNREADABLE = [
    ("half a line", 'mcp2026_requests_total{code="200",model="m",ver'),
    ("no number", 'mcp2026_requests_total{code="200",model="m",version="v1"} many\n'),
    ("a negative count", 'mcp2026_requests_total{code="200",model="m",version="v1"} -1.0\n'),
    ("an infinite count", 'mcp2026_requests_total{code="200",model="m",version="v1"} +Inf\n'),
    ("not a number", 'mcp2026_requests_total{code="200",model="m",version="v1"} NaN\n'),
    ("a label is missing", 'mcp2026_requests_total{code="200",version="v1"} 1.0\n'),
    ("no status", 'mcp2026_requests_total{model="m",version="v1"} 1.0\n'),
    ("no bound", 'mcp2026_request_duration_seconds_bucket{model="m",version="v1"} 1.0\n'),
    (
        "a bound that is no number",
        'mcp2026_request_duration_seconds_bucket{le="NaN",model="m",version="v1"} 1\n',
    ),
    ("a bound of words", 'mcp2026_request_duration_seconds_bucket{le="x",model="m",version="v1"} 1.0\n'),
]


@pytest.mark.parametrize("page", [row[1] for row in UNREADABLE], ids=[row[0] for row in UNREADABLE])
def test_a_page_that_is_not_the_runtimes_is_no_count(page: str) -> None:
    with pytest.raises(UnreadableMetricsError):
        read_counts(page, "m")


@given(st.text() | st.text(alphabet='mcp2026_requests_total{}code="5",=\n 1.'))
def test_any_text_is_read_or_refused(text: str) -> None:
    for page in (text, f"mcp2026_requests_total{{{text}"):
        try:
            found = read_counts(page, "m")
        except UnreadableMetricsError:
            continue
        assert all(counts.requests >= counts.errors >= 0 for counts in found.values())


BEFORE = Counts(100, 5, {0.001: 60, INFINITY: 35})
DIFFERENCES = [
    ("nothing came", BEFORE, Counts(0, 0, {0.001: 0, INFINITY: 0})),
    ("some came", Counts(130, 6, {0.001: 80, INFINITY: 44}), Counts(30, 1, {0.001: 20, INFINITY: 9})),
    ("it began again", Counts(10, 0, {0.001: 10}), Counts(10, 0, {0.001: 10})),
    ("only errors fell", Counts(120, 0, {0.001: 80, INFINITY: 40}), None),
    ("only a bucket fell", Counts(150, 5, {0.001: 20, INFINITY: 125}), None),
]


@pytest.mark.parametrize(("now", "wanted"), [row[1:] for row in DIFFERENCES], ids=[r[0] for r in DIFFERENCES])
def test_what_was_counted_since(now: Counts, wanted: Counts | None) -> None:
    """None: all counters began again, so all that is there now is new."""
    assert now.since(BEFORE) == (wanted or now)
    assert now.since(Counts()) == now


counts = st.builds(
    Counts,
    requests=st.integers(0, 10**6),
    errors=st.integers(0, 10**6),
    answered=st.fixed_dictionaries({bound: st.integers(0, 10**6) for bound in BOUNDS}),
)


@given(counts, counts)
def test_what_is_added_is_what_came_since(before: Counts, more: Counts) -> None:
    assert (before + more).since(before) == more


@given(st.lists(counts, min_size=1))
def test_a_total_is_the_sum_of_all(pods: list[Counts]) -> None:
    found = total(pods)
    assert found.requests == sum(pod.requests for pod in pods)
    assert sum(found.answered.values()) == sum(sum(pod.answered.values()) for pod in pods)


def bucket_of(seconds: float) -> tuple[float, float]:
    upper = next(bound for bound in BOUNDS if seconds <= bound)
    return max((bound for bound in BOUNDS if bound < upper), default=0.0), upper


@given(st.lists(st.floats(1e-5, 5.0), min_size=1, max_size=300))
def test_a_p95_lies_in_the_bucket_of_the_exact_one(seconds: list[float]) -> None:
    answered = dict.fromkeys(BOUNDS, 0)
    for one in seconds:
        answered[bucket_of(one)[1]] += 1
    exact = sorted(seconds)[math.ceil(0.95 * len(seconds)) - 1]
    lower, upper = bucket_of(exact)
    found = p95_ms(answered)
    assert found is not None
    if upper == INFINITY:
        assert found == pytest.approx(lower * 1e3)
    else:
        assert lower * 1e3 <= found <= upper * 1e3 * (1 + 1e-12)


P95 = [
    ("nothing", {}, None),
    ("empty buckets", {0.001: 0, INFINITY: 0}, None),
    ("one bucket, evenly", {0.001: 100, INFINITY: 0}, 0.95),
    ("exactly its upper bound", {0.001: 95, 0.01: 5, INFINITY: 0}, 1.0),
    ("four fifths of the second", {0.001: 75, 0.01: 25, INFINITY: 0}, 1 + 9 * 20 / 25),
    ("above all bounds", {0.001: 90, INFINITY: 10}, 1.0),
]


@pytest.mark.parametrize(("answered", "wanted"), [row[1:] for row in P95], ids=[row[0] for row in P95])
def test_a_p95_is_interpolated(answered: dict[float, int], wanted: float | None) -> None:
    assert p95_ms(answered) == (wanted if wanted is None else pytest.approx(wanted))
    assert measured(Counts(7, 2, answered)) == Measured(7, 2, p95_ms(answered))
