"""Revisions on their way to the pods: numbers that only grow, and what is said about how far they are."""

import copy
from typing import Any

import pytest

from mcp2026.operator.actions import ApplyChild
from tests.fakes.played_cluster import PlayedCluster, model

TWO_VERSIONS = [
    {"versionId": "v1", "weight": 90, "uri": "pvc://models/resnet50.onnx"},
    {"versionId": "v2", "weight": 10, "uri": "pvc://models/resnet50-v2.onnx"},
]
ON_ANOTHER_CLAIM = [{"versionId": "v2", "weight": 100, "uri": "pvc://other/resnet50.onnx"}]


def serving(**spec: Any) -> PlayedCluster:
    cluster = PlayedCluster(model(**spec))
    cluster.serve()
    return cluster


def applied(actions: list[Any]) -> list[str]:
    return [action.manifest["kind"] for action in actions if isinstance(action, ApplyChild)]


def settled(cluster: PlayedCluster) -> tuple[str, str, str]:
    condition = cluster.condition("TrafficSettled")
    return condition["status"], condition["reason"], condition["message"]


def traffic(cluster: PlayedCluster) -> tuple[int, int, int]:
    told = cluster.resource["status"]["traffic"]
    return told["revision"], told["liveOn"], told["of"]


@pytest.mark.parametrize(
    "change",
    [
        {"versions": TWO_VERSIONS},
        {"batching": {"maxBatchSize": 16}},
        {"qos": {"tenants": [{"tenantId": "acme", "weight": 3}]}},
        {"qos": {"queue": {"maxTimeoutMs": 50}}},
    ],
    ids=["versions and weights", "batching", "tenants", "limits of time"],
)
def test_a_change_of_what_is_served_touches_the_configuration_alone(change: dict[str, Any]) -> None:
    cluster = serving(replicas=2)
    pods = copy.deepcopy(cluster.pods)
    cluster.edit(**change)
    assert applied(cluster.reconcile()) == ["ConfigMap"]
    assert traffic(cluster) == (2, 0, 2)
    assert cluster.condition("Ready")["status"] == "True"
    first, second = cluster.pods
    assert settled(cluster) == (
        "False",
        "WaitingForRevision",
        f"revision 2 is live on 0 of 2 pods; pod {first} serves revision 1; pod {second} serves revision 1",
    )
    cluster.report(second)
    cluster.reconcile()
    assert traffic(cluster) == (2, 1, 2)
    cluster.follow()
    assert settled(cluster) == ("True", "RevisionLive", "revision 2 is live on 2 of 2 pods")
    assert traffic(cluster) == (2, 2, 2)
    assert cluster.pods == pods
    assert cluster.reconcile() == []
    assert [event.reason for event in cluster.told][-1] == "RevisionLive"


def test_a_pod_that_is_not_ready_serves_nothing_whatever_it_reported() -> None:
    cluster = serving(replicas=2)
    pod = next(iter(cluster.pods))
    cluster.pods[pod]["status"]["conditions"][1]["status"] = "False"
    cluster.reconcile()
    assert settled(cluster)[2] == f"revision 1 is live on 1 of 2 pods; pod {pod} is not ready"


def test_a_report_of_an_earlier_pod_of_the_same_name_says_nothing() -> None:
    cluster = serving()
    (pod,) = cluster.pods
    cluster.leases[pod]["spec"]["holderIdentity"] = "uid-of-another"
    cluster.reconcile()
    assert settled(cluster)[2] == f"revision 1 is live on 0 of 1 pods; pod {pod} has not reported yet"


@pytest.mark.parametrize("text", ["", "one", "-1", "1.5", "²", None], ids=repr)
def test_a_report_that_is_no_number_says_nothing(text: str | None) -> None:
    cluster = serving()
    (lease,) = cluster.leases.values()
    lease["metadata"]["annotations"]["mcp2026.io/live-revision"] = text
    cluster.reconcile()
    assert traffic(cluster) == (1, 0, 1)


def test_of_many_pods_that_lag_some_are_named() -> None:
    cluster = serving(replicas=10)
    cluster.edit(versions=TWO_VERSIONS)
    cluster.reconcile()
    message = settled(cluster)[2]
    assert message.count("serves revision 1") == 3
    assert message.endswith("; 7 more")


def test_a_revision_that_cannot_be_served_is_told_and_the_old_one_serves_on() -> None:
    cluster = serving(replicas=2)
    cluster.edit(versions=TWO_VERSIONS)
    cluster.reconcile()
    good, bad = cluster.pods
    cluster.report(good)
    cluster.report(bad, live=1, failed=2, problem="v2: no such file")
    cluster.reconcile()
    told = f"revision 2 is not served everywhere; pod {bad} serves revision 1: v2: no such file"
    assert settled(cluster) == ("False", "RevisionRefused", told)
    blocked = cluster.condition("RolloutBlocked")
    assert (blocked["status"], blocked["reason"], blocked["message"]) == ("True", "RevisionRefused", told)
    assert cluster.condition("Ready")["status"] == "True"
    assert traffic(cluster) == (2, 1, 2)
    assert cluster.told[-1].type == "Warning"
    assert cluster.reconcile() == []
    cluster.follow()
    assert settled(cluster)[0] == "True"
    assert cluster.condition("RolloutBlocked")["status"] == "False"


def test_a_document_that_a_pod_cannot_read_has_no_number_and_is_told() -> None:
    cluster = serving()
    cluster.edit(versions=TWO_VERSIONS)
    cluster.reconcile()
    (pod,) = cluster.pods
    cluster.report(pod, live=1, problem="unknown field")
    cluster.reconcile()
    assert settled(cluster)[1] == "RevisionRefused"


def test_the_failure_of_an_older_revision_does_not_matter() -> None:
    cluster = serving()
    cluster.edit(versions=TWO_VERSIONS)
    cluster.reconcile()
    (pod,) = cluster.pods
    cluster.report(pod, live=1, failed=2, problem="v2: no such file")
    cluster.edit(versions=[{"versionId": "v1", "weight": 100, "uri": "pvc://models/third.onnx"}])
    cluster.reconcile()
    assert settled(cluster)[1] == "WaitingForRevision"
    assert cluster.condition("RolloutBlocked")["status"] == "False"


def test_pods_that_are_being_replaced_may_refuse_what_needs_a_new_claim() -> None:
    cluster = serving()
    (old,) = cluster.pods
    cluster.edit(versions=ON_ANOTHER_CLAIM)
    assert applied(cluster.reconcile()) == ["ConfigMap", "Deployment"]
    cluster.report(old, live=1, failed=2, problem="v2: no such file")
    cluster.reconcile()
    assert cluster.condition("RolloutBlocked")["status"] == "False"
    assert settled(cluster)[2] == f"revision 2 is live on 0 of 1 pods; pod {old} serves revision 1"
    cluster.play_pods(ready=True, replace=False)
    cluster.reconcile()
    assert settled(cluster)[0] == "False", "the old pod serves too, and an older revision"
    cluster.play_pods(ready=True)
    cluster.reconcile()
    assert settled(cluster)[0] == "True"


def test_pods_on_their_way_out_do_not_count() -> None:
    cluster = serving(replicas=2)
    cluster.edit(replicas=1)
    pod = next(iter(cluster.pods))
    cluster.pods[pod]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.leases.pop(pod)
    cluster.reconcile()
    assert settled(cluster) == ("True", "RevisionLive", "revision 1 is live on 1 of 1 pods")


def test_a_rollout_of_the_image_does_not_unsettle_the_traffic() -> None:
    cluster = serving()
    cluster.edit(workers=2)
    cluster.reconcile()
    assert settled(cluster)[0] == "True"
    assert cluster.condition("Ready")["status"] == "False"


def test_without_pods_nothing_is_settled() -> None:
    cluster = serving(replicas=0)
    assert settled(cluster) == ("False", "ScaledToZero", "spec.replicas is 0")
    waiting = PlayedCluster(model(dependsOn=["tokenizer"]))
    waiting.dependencies = {"tokenizer": None}
    waiting.reconcile()
    assert settled(waiting)[1] == "WaitingForDependencies"
    assert traffic(waiting) == (0, 0, 1)


def test_going_back_to_an_earlier_configuration_is_a_new_revision() -> None:
    cluster = serving()
    seen = [cluster.revision]
    for size in (16, 32, 16):
        cluster.edit(batching={"maxBatchSize": size})
        cluster.reconcile()
        seen.append(cluster.revision)
    assert seen == [1, 2, 3, 4]


def lose_status(cluster: PlayedCluster) -> None:
    del cluster.resource["status"]


def lose_config_map(cluster: PlayedCluster) -> None:
    del cluster.children["ConfigMap"]


def lose_both(cluster: PlayedCluster) -> None:
    lose_status(cluster)
    lose_config_map(cluster)


def restore_the_first_config_map(cluster: PlayedCluster) -> None:
    data = cluster.children["ConfigMap"]["data"]
    data["serving.json"] = data["serving.json"].replace('"revision":3', '"revision":1')
    lose_status(cluster)


def lower_the_number_by_hand(cluster: PlayedCluster) -> None:
    data = cluster.children["ConfigMap"]["data"]
    data["serving.json"] = data["serving.json"].replace('"revision":3', '"revision":2')


def change_the_content_by_hand(cluster: PlayedCluster) -> None:
    data = cluster.children["ConfigMap"]["data"]
    data["serving.json"] = data["serving.json"].replace('"maxBatchSize":64', '"maxBatchSize":8')


def break_the_document_by_hand(cluster: PlayedCluster) -> None:
    cluster.children["ConfigMap"]["data"]["serving.json"] = "{"


LOSSES = [
    pytest.param(lose_status, 3, id="the status is lost: the ConfigMap knows"),
    pytest.param(lose_config_map, 4, id="the ConfigMap is deleted: the status knows the number"),
    pytest.param(lose_both, 4, id="both are lost: the pods report it"),
    pytest.param(restore_the_first_config_map, 4, id="an old ConfigMap comes back: the pods report more"),
    pytest.param(lower_the_number_by_hand, 4, id="the number is lowered by hand"),
    pytest.param(change_the_content_by_hand, 4, id="the content is changed by hand"),
    pytest.param(break_the_document_by_hand, 4, id="the document is broken by hand"),
]


@pytest.mark.parametrize(("lose", "after"), LOSSES)
def test_no_number_comes_twice_with_another_content(lose: Any, after: int) -> None:
    cluster = serving()
    for size in (16, 64):
        cluster.edit(batching={"maxBatchSize": size})
        cluster.follow()
        cluster.follow()
    assert cluster.revision == 3
    lose(cluster)
    cluster.reconcile()
    assert (cluster.revision, traffic(cluster)[0]) == (after, after)
    assert '"maxBatchSize":64' in cluster.children["ConfigMap"]["data"]["serving.json"]
    cluster.follow()
    cluster.reconcile()
    assert cluster.reconcile() == []
    assert cluster.revision == after


def test_a_revision_that_was_refused_is_not_given_out_again() -> None:
    cluster = serving()
    cluster.edit(versions=TWO_VERSIONS)
    cluster.reconcile()
    (pod,) = cluster.pods
    cluster.report(pod, live=1, failed=2, problem="no such file")
    lose_both(cluster)
    cluster.reconcile()
    assert cluster.revision == 3


def test_a_report_beyond_all_counting_uses_up_no_numbers() -> None:
    cluster = serving()
    (pod,) = cluster.pods
    cluster.report(pod, live=2**63)
    cluster.edit(batching={"maxBatchSize": 16})
    cluster.reconcile()
    assert cluster.revision == 2


def test_a_revision_written_just_before_a_crash_is_kept() -> None:
    cluster = serving()
    cluster.edit(batching={"maxBatchSize": 16})
    old_status = copy.deepcopy(cluster.resource["status"])
    cluster.reconcile()
    cluster.resource["status"] = old_status  # the status was never written
    cluster.reconcile()
    assert cluster.revision == 2
    assert traffic(cluster)[0] == 2
