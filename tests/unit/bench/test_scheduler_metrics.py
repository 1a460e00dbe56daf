"""What is read out of kube-scheduler's page of metrics."""

from math import inf

from bench.scheduling.scheduler_metrics import attempts, both

PAGE = """
# TYPE scheduler_scheduling_algorithm_duration_seconds histogram
scheduler_scheduling_algorithm_duration_seconds_bucket{le="0.001"} 0
scheduler_scheduling_algorithm_duration_seconds_bucket{le="0.016"} 6
scheduler_scheduling_algorithm_duration_seconds_bucket{le="0.032"} 9
scheduler_scheduling_algorithm_duration_seconds_bucket{le="+Inf"} 10
scheduler_scheduling_algorithm_duration_seconds_sum 0.2
scheduler_scheduling_algorithm_duration_seconds_count 10
# TYPE scheduler_framework_extension_point_duration_seconds histogram
scheduler_framework_extension_point_duration_seconds_sum{extension_point="Filter",profile="a"} 0.03
scheduler_framework_extension_point_duration_seconds_sum{extension_point="Score",profile="a"} 0.05
scheduler_framework_extension_point_duration_seconds_sum{extension_point="Bind",profile="a"} 7
"""


def test_what_is_left_of_an_attempt_beside_its_plugins_is_the_extender_and_the_snapshot() -> None:
    seen = attempts(PAGE)
    assert round(seen.mean_ms, 3) == 20.0
    assert round(seen.outside_plugins_ms, 3) == 12.0


def test_a_quantile_is_told_as_the_bound_of_its_bucket() -> None:
    seen = attempts(PAGE)
    assert (seen.at_most_ms(0.5), seen.at_most_ms(0.9), seen.at_most_ms(0.99)) == (16.0, 32.0, inf)


def test_two_schedulers_are_added_up() -> None:
    seen = attempts(PAGE)
    twice = both(seen, seen)
    assert (twice.count, twice.mean_ms, twice.at_most_ms(0.5)) == (20, seen.mean_ms, 16.0)
