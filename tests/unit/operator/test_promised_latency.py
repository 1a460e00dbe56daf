"""A promised latency goes with the pods to the scheduler; to change it restarts none."""

from typing import Any

import pytest

from mcp2026.api.inference_model import parse_inference_model
from mcp2026.api.names import SLO_LATENCY_ANNOTATION
from mcp2026.operator.actions import AnnotatePod, ApplyChild
from mcp2026.operator.children import deployment
from mcp2026.scheduler_extender.promises import promised_latency_us
from tests.fakes.played_cluster import SETTINGS, PlayedCluster, model

GPU = {"count": 1}


def promise_of(metadata: dict[str, Any]) -> str | None:
    value: str | None = metadata["annotations"].get(SLO_LATENCY_ANNOTATION)
    return value


def of_template(cluster: PlayedCluster) -> str | None:
    return promise_of(cluster.deployment["spec"]["template"]["metadata"])


def of_pods(cluster: PlayedCluster) -> set[str | None]:
    return {promise_of(pod["metadata"]) for pod in cluster.pods.values()}


def started(**spec: Any) -> PlayedCluster:
    cluster = PlayedCluster(model(gpu=GPU, replicas=2, **spec))
    for _ in range(3):
        cluster.reconcile()
    return cluster


@pytest.mark.parametrize(
    ("latency_ms", "microseconds"),
    [(25, 25_000), (6.1, 6_100), (0.001, 1), (600_000, 600_000_000), (1e3, 10**6)],
)
def test_the_scheduler_reads_what_the_model_says(latency_ms: float, microseconds: int) -> None:
    slo = {"latencyP95Ms": latency_ms}
    template = deployment(parse_inference_model(model(gpu=GPU, slo=slo)), SETTINGS)["spec"]["template"]
    assert promised_latency_us(template["metadata"]["annotations"]) == microseconds


def test_a_model_without_gpus_or_promise_says_nothing() -> None:
    for spec in ({"slo": {"latencyP95Ms": 25}}, {"gpu": GPU}):
        template = deployment(parse_inference_model(model(**spec)), SETTINGS)["spec"]["template"]
        assert SLO_LATENCY_ANNOTATION not in template["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("before", "after"),
    [({"latencyP95Ms": 25}, {"latencyP95Ms": 9}), (None, {"latencyP95Ms": 25}), ({"latencyP95Ms": 25}, None)],
    ids=["changed", "made", "taken back"],
)
def test_a_change_restarts_nothing_and_reaches_the_pods_that_wait(
    before: dict[str, int] | None, after: dict[str, int] | None
) -> None:
    cluster = started(**({"slo": before} if before else {}))
    cluster.play_pods(scheduled=False)
    template = cluster.deployment["spec"]["template"]
    cluster.edit(slo=after)
    actions = cluster.reconcile()
    assert cluster.deployment["spec"]["template"] == template
    assert not any(isinstance(action, ApplyChild) for action in actions)
    assert of_pods(cluster) == {str(after["latencyP95Ms"]) if after else None}
    assert not any(isinstance(action, AnnotatePod) for action in cluster.reconcile()), "once"


def test_a_pod_that_has_its_node_keeps_the_promise_by_which_it_came_there() -> None:
    cluster = started(slo={"latencyP95Ms": 25})
    cluster.play_pods(ready=True)
    cluster.edit(slo={"latencyP95Ms": 9})
    cluster.reconcile()
    assert of_pods(cluster) == {"25"}


def test_pods_that_come_by_scaling_get_the_promise_of_today() -> None:
    cluster = started(slo={"latencyP95Ms": 25})
    cluster.edit(slo={"latencyP95Ms": 9}, replicas=3)
    cluster.reconcile()
    assert of_template(cluster) == "25", "the template is that of the pods that run"
    cluster.play_pods(scheduled=False)
    cluster.reconcile()
    assert of_pods(cluster) == {"9"}


def test_the_next_change_that_replaces_pods_takes_the_promise_along() -> None:
    cluster = started(slo={"latencyP95Ms": 25})
    cluster.edit(slo={"latencyP95Ms": 9})
    cluster.reconcile()
    assert of_template(cluster) == "25"
    cluster.edit(workers=2)
    cluster.reconcile()
    assert of_template(cluster) == "9"
