"""The local table is kubectl's: the same columns, the same abbreviations of time."""

from datetime import UTC, datetime, timedelta

import pytest

from mcp2026.cli.printer_columns import age, json_path, model_table

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("passed", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(seconds=119), "119s"),
        (timedelta(minutes=2), "2m"),
        (timedelta(minutes=3, seconds=10), "3m10s"),
        (timedelta(minutes=59), "59m"),
        (timedelta(hours=2, minutes=59), "179m"),
        (timedelta(hours=4, minutes=2), "4h2m"),
        (timedelta(hours=9), "9h"),
        (timedelta(days=5), "5d"),
        (timedelta(seconds=-5), "0s"),
    ],
)
def test_a_duration_is_abbreviated_as_by_kubectl(passed: timedelta, text: str) -> None:
    assert age(START, START + passed) == text


def test_the_table_of_a_model() -> None:
    conditions = [{"type": "RolloutBlocked", "status": "False"}, {"type": "Ready", "status": "True"}]
    resource = {
        "metadata": {"name": "resnet50", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"replicas": 2, "gpu": {"count": 4}},
        "status": {"phase": "Running", "versions": "v1=100", "readyReplicas": 2, "conditions": conditions},
    }
    assert model_table(resource, START + timedelta(seconds=8)) == (
        "NAME       PHASE     READY   VERSIONS   GPUS   DESIRED   SERVING   AGE\n"
        "resnet50   Running   True    v1=100     4      2         2         8s"
    )


def test_what_is_not_there_is_an_empty_cell() -> None:
    resource = {"metadata": {"name": "m"}, "spec": {}}
    assert model_table(resource, START).splitlines()[1] == "m"


def test_a_path_that_is_not_understood_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[\*\] is not understood"):
        json_path({}, ".items[*]")
