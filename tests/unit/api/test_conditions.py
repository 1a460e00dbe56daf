"""Conditions merge as Kubernetes' API conventions ask."""

from mcp2026.api.conditions import Condition, merge_condition

OLD = Condition("Ready", "False", "Waiting", "1 of 2", "2026-01-01T00:00:00Z", 1)
OTHER = Condition("RolloutBlocked", "False", "Progressing", "", "2026-01-01T00:00:00Z", 1)


def test_a_new_type_is_appended() -> None:
    assert merge_condition((OTHER,), OLD) == (OTHER, OLD)


def test_a_changed_status_takes_the_new_time_and_keeps_its_place() -> None:
    new = Condition("Ready", "True", "AllReplicasReady", "", "2026-01-02T00:00:00Z", 2)
    assert merge_condition((OLD, OTHER), new) == (new, OTHER)


def test_the_same_status_keeps_its_time_but_takes_reason_message_and_generation() -> None:
    new = Condition("Ready", "False", "Unschedulable", "0 of 2", "2026-01-02T00:00:00Z", 2)
    merged = merge_condition((OLD, OTHER), new)
    assert merged[0] == Condition("Ready", "False", "Unschedulable", "0 of 2", "2026-01-01T00:00:00Z", 2)
    assert merged[1] is OTHER
