"""What the operator does in each situation, from the first apply to the last pod."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from mcp2026.operator.actions import ApplyChild, EmitEvent, RequeueAfter, UpdateStatus
from mcp2026.operator.progress import TRANSITIONS_KEPT
from tests.fakes.played_cluster import PlayedCluster, model

CHILDREN = ["ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Service", "Deployment"]


def applied(actions: list[Any]) -> list[str]:
    return [action.manifest["kind"] for action in actions if isinstance(action, ApplyChild)]


def test_the_first_reconcile_makes_all_children_the_pods_last() -> None:
    cluster = PlayedCluster(model())
    actions = cluster.reconcile()
    assert applied(actions) == CHILDREN
    assert cluster.resource["status"]["phase"] == "Pending"
    assert cluster.condition("Ready")["reason"] == "WaitingForReplicas"
    assert cluster.resource["status"]["selector"] == "mcp2026.io/inference-model=resnet50"
    assert cluster.resource["status"]["versions"] == "v1=100"


def test_a_model_becomes_running_and_ready() -> None:
    cluster = PlayedCluster(model(replicas=2))
    cluster.serve()
    status = cluster.resource["status"]
    assert status["phase"] == "Running"
    assert [(step["event"], step["from"], step["to"]) for step in status["transitions"]] == [
        ("ResourceAllocated", "Pending", "Running")
    ]
    assert cluster.condition("Ready") == {
        "type": "Ready",
        "status": "True",
        "reason": "AllReplicasReady",
        "message": "2 of 2 replicas serve",
        "lastTransitionTime": "2026-01-01T00:00:02Z",
        "observedGeneration": 1,
    }
    assert cluster.condition("ResourcesAllocated")["status"] == "True"
    assert cluster.condition("RolloutBlocked")["status"] == "False"
    assert status["traffic"] == {"revision": 1, "liveOn": 2, "of": 2}
    assert (status["replicas"], status["readyReplicas"], status["observedGeneration"]) == (2, 2, 1)
    assert [event.reason for event in cluster.told] == [
        "ResourceAllocated",
        "AllReplicasReady",
        "RevisionLive",
    ]


def test_with_nothing_to_do_nothing_is_done_however_often_one_looks() -> None:
    cluster = PlayedCluster(model(gpu={"count": 1}))
    cluster.serve()
    assert [cluster.reconcile() for _ in range(5)] == [[]] * 5


def test_the_fields_that_a_cluster_adds_are_no_drift() -> None:
    cluster = PlayedCluster(model(resources={"limits": {"cpu": "1000m", "memory": "1024Mi"}}))
    cluster.serve()
    spec = cluster.deployment["spec"]["template"]["spec"]
    spec["restartPolicy"] = "Always"
    container = spec["containers"][0]
    container["resources"] = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    spec["containers"].append({"name": "injected-sidecar", "image": "x"})
    cluster.children["Service"]["spec"]["clusterIP"] = "10.0.0.1"
    cluster.children["ConfigMap"]["metadata"]["labels"]["team"] = "a"
    assert cluster.reconcile() == []


DRIFT: list[tuple[str, Callable[[PlayedCluster], Any], list[str]]] = [
    ("the Deployment is deleted", lambda c: c.children.pop("Deployment"), ["Deployment"]),
    ("the account is deleted", lambda c: c.children.pop("ServiceAccount"), ["ServiceAccount"]),
    ("a right is added", lambda c: c.children["Role"]["rules"][0]["verbs"].append("list"), ["Role"]),
    ("an object is added", lambda c: c.children["Role"]["rules"][0].pop("resourceNames"), ["Role"]),
    ("another subject", lambda c: c.children["RoleBinding"]["subjects"][0].update(name="x"), ["RoleBinding"]),
    ("the ConfigMap is deleted", lambda c: c.children.pop("ConfigMap"), ["ConfigMap"]),
    ("the Service is deleted", lambda c: c.children.pop("Service"), ["Service"]),
    ("replicas are edited", lambda c: c.deployment["spec"].update(replicas=9), ["Deployment"]),
    (
        "the image is edited",
        lambda c: c.deployment["spec"]["template"]["spec"]["containers"][0].update(image="evil"),
        ["Deployment"],
    ),
    ("the configuration is edited", lambda c: c.children["ConfigMap"]["data"].clear(), ["ConfigMap"]),
    (
        "the selector is edited",
        lambda c: c.children["Service"]["spec"]["selector"].update({"mcp2026.io/inference-model": "x"}),
        ["Service"],
    ),
    ("a label is removed", lambda c: c.children["Service"]["metadata"]["labels"].clear(), ["Service"]),
    (
        "the owner reference is removed",
        lambda c: c.children["Service"]["metadata"]["ownerReferences"].clear(),
        ["Service"],
    ),
    (
        "the Deployment is on its way out",
        lambda c: c.deployment["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"),
        ["Deployment"],
    ),
]


def served(cluster: PlayedCluster) -> dict[str, Any]:
    """Return what the ConfigMap says, but for the revision."""
    document: dict[str, Any] = json.loads(cluster.children["ConfigMap"]["data"]["serving.json"])
    return {name: value for name, value in document.items() if name != "revision"}


@pytest.mark.parametrize(("drift", "repaired"), [row[1:] for row in DRIFT], ids=[row[0] for row in DRIFT])
def test_drift_is_repaired(drift: Callable[[PlayedCluster], Any], repaired: list[str]) -> None:
    cluster = PlayedCluster(model())
    cluster.serve()
    before, served_before = copy.deepcopy(cluster.children), served(cluster)
    drift(cluster)
    assert applied(cluster.reconcile()) == repaired
    for kind in before:
        assert cluster.children[kind].get("spec") == before[kind].get("spec")
        assert cluster.children[kind].get("rules") == before[kind].get("rules")
        assert cluster.children[kind].get("subjects") == before[kind].get("subjects")
    assert served(cluster) == served_before


def test_a_field_that_is_no_longer_wanted_is_taken_back() -> None:
    cluster = PlayedCluster(model(priorityClassName="mcp-gpu-high"))
    cluster.serve()
    cluster.edit(priorityClassName=None)
    assert applied(cluster.reconcile()) == ["Deployment"]


def test_a_model_that_is_being_deleted_is_left_to_the_garbage_collector() -> None:
    cluster = PlayedCluster(model())
    cluster.serve()
    cluster.resource["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.children.clear()
    assert cluster.reconcile() == []


def test_scaling_applies_the_deployment_alone_and_is_ready_when_all_serve() -> None:
    cluster = PlayedCluster(model())
    cluster.serve()
    cluster.edit(replicas=3)
    assert applied(cluster.reconcile()) == ["Deployment"]
    assert cluster.condition("Ready")["message"] == "1 of 3 replicas serve the newest generation"
    cluster.play_pods(ready=True)
    cluster.reconcile()
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.resource["status"]["traffic"] == {"revision": 1, "liveOn": 3, "of": 3}
    assert len(cluster.resource["status"]["transitions"]) == 1


def test_scaled_to_zero_it_is_not_ready_and_says_so() -> None:
    cluster = PlayedCluster(model(replicas=0))
    cluster.serve()
    assert cluster.condition("Ready")["reason"] == "ScaledToZero"
    assert cluster.resource["status"]["phase"] == "Pending"
    assert cluster.reconcile() == []


def test_old_pods_keep_a_model_from_being_ready() -> None:
    cluster = PlayedCluster(model())
    cluster.serve()
    cluster.edit(workers=2)
    cluster.reconcile()
    cluster.play_pods(ready=True, replace=False)
    cluster.reconcile()
    assert cluster.condition("Ready")["status"] == "False"
    assert cluster.condition("Ready")["message"].endswith("1 of an older one run")


def test_a_deployment_whose_controller_has_not_looked_yet_is_not_ready() -> None:
    cluster = PlayedCluster(model())
    cluster.serve()
    cluster.deployment["metadata"]["generation"] += 1
    cluster.reconcile()
    assert cluster.condition("Ready")["status"] == "False"


def ready_model(name: str, **status: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True", "reason": "AllReplicasReady"}
    return {**model(name), "status": {"phase": "Running", "conditions": [condition], **status}}


UNMET: list[tuple[str, dict[str, Any] | None]] = [
    ("it does not exist", None),
    ("it has no status yet", model("tokenizer")),
    ("it runs but is not ready", ready_model("tokenizer", conditions=[{"type": "Ready", "status": "False"}])),
    ("it failed", ready_model("tokenizer", phase="Failed", conditions=[])),
    (
        "it is being deleted",
        {**ready_model("tokenizer"), "metadata": {"name": "tokenizer", "deletionTimestamp": "x"}},
    ),
]


@pytest.mark.parametrize("dependency", [row[1] for row in UNMET], ids=[row[0] for row in UNMET])
def test_while_a_dependency_is_not_met_nothing_is_allocated(dependency: dict[str, Any] | None) -> None:
    cluster = PlayedCluster(model(dependsOn=["tokenizer"]))
    cluster.dependencies = {"tokenizer": dependency}
    assert applied(cluster.reconcile()) == []
    assert cluster.resource["status"]["phase"] == "Pending"
    for kind in ("Ready", "ResourcesAllocated"):
        assert cluster.condition(kind)["reason"] == "WaitingForDependencies"
        assert cluster.condition(kind)["message"] == "waiting for tokenizer"
    assert cluster.reconcile() == []


MET = [
    ("it is ready", ready_model("tokenizer")),
    ("it succeeded", ready_model("tokenizer", phase="Succeeded", conditions=[])),
    ("it completed", ready_model("tokenizer", phase="Completed", conditions=[])),
]


@pytest.mark.parametrize("dependency", [row[1] for row in MET], ids=[row[0] for row in MET])
def test_when_the_dependency_is_met_the_model_starts(dependency: dict[str, Any]) -> None:
    cluster = PlayedCluster(model(dependsOn=["tokenizer"]))
    cluster.dependencies = {"tokenizer": None}
    cluster.reconcile()
    cluster.dependencies = {"tokenizer": dependency}
    assert applied(cluster.reconcile()) == CHILDREN


def test_a_dependency_that_fails_later_takes_nothing_away() -> None:
    cluster = PlayedCluster(model(dependsOn=["tokenizer"]))
    cluster.dependencies = {"tokenizer": ready_model("tokenizer")}
    cluster.serve()
    cluster.dependencies = {"tokenizer": None}
    assert cluster.reconcile() == []


def test_pods_scheduled_while_a_dependency_is_gone_do_not_start_the_life() -> None:
    cluster = PlayedCluster(model(dependsOn=["tokenizer"]))
    cluster.dependencies = {"tokenizer": ready_model("tokenizer")}
    cluster.reconcile()
    cluster.dependencies = {"tokenizer": None}
    cluster.play_pods(ready=True)
    cluster.reconcile()
    assert cluster.resource["status"]["phase"] == "Pending"
    assert cluster.resource["status"]["transitions"] == []


def test_pods_of_an_older_template_do_not_count_as_allocated() -> None:
    cluster = PlayedCluster(model())
    cluster.reconcile()
    cluster.play_pods(scheduled=True)
    cluster.edit(workers=2)
    cluster.reconcile()
    assert cluster.resource["status"]["phase"] == "Pending"


def test_a_life_begins_with_pending_even_if_its_pods_run_already() -> None:
    cluster = PlayedCluster(model())
    cluster.reconcile()
    cluster.play_pods(ready=True)
    del cluster.resource["status"]  # written by nobody: the operator died, or a backup lost it
    cluster.reconcile()
    assert cluster.resource["status"]["phase"] == "Pending"
    cluster.reconcile()
    assert cluster.resource["status"]["phase"] == "Running"


def test_a_blocked_rollout_is_told_once_and_clears_up() -> None:
    cluster = PlayedCluster(model(gpu={"count": 2}))
    cluster.reconcile()
    cluster.play_pods(scheduled=False)
    pod = next(iter(cluster.pods.values()))
    pod["status"]["conditions"][0] |= {"reason": "Unschedulable", "message": "0/3 nodes are available"}
    cluster.reconcile()
    blocked = cluster.condition("RolloutBlocked")
    assert (blocked["status"], blocked["reason"]) == ("True", "Unschedulable")
    assert blocked["message"].endswith("0/3 nodes are available")
    assert cluster.condition("ResourcesAllocated")["reason"] == "Unschedulable"
    assert cluster.reconcile() == []
    cluster.play_pods(ready=True)
    cluster.reconcile()
    assert cluster.condition("RolloutBlocked")["status"] == "False"
    assert [(event.type, event.reason) for event in cluster.told] == [
        ("Warning", "Unschedulable"),
        ("Normal", "ResourceAllocated"),
        ("Normal", "AllReplicasReady"),
        ("Normal", "RevisionLive"),
    ]


def test_somebody_elses_object_of_the_same_name_is_not_touched() -> None:
    cluster = PlayedCluster(model())
    cluster.children["Deployment"] = {"metadata": {"name": "resnet50", "namespace": "team-a"}, "spec": {}}
    actions = cluster.reconcile()
    assert applied(actions) == []
    assert RequeueAfter(30.0) in actions
    blocked = cluster.condition("RolloutBlocked")
    assert blocked["reason"] == "NameTaken"
    assert blocked["message"].startswith("Deployment resnet50 exists and is not this model's")
    assert cluster.reconcile() == [RequeueAfter(30.0)]
    del cluster.children["Deployment"]
    assert applied(cluster.reconcile()) == CHILDREN


def test_a_child_that_lost_its_owner_is_adopted() -> None:
    cluster = PlayedCluster(model())
    cluster.serve()
    cluster.deployment["metadata"]["ownerReferences"] = []
    assert applied(cluster.reconcile()) == ["Deployment"]
    assert cluster.deployment["metadata"]["ownerReferences"][0]["uid"] == "uid-resnet50"


def test_a_spec_that_cannot_be_understood_is_said_on_the_resource_and_its_pods_stay() -> None:
    cluster = PlayedCluster(model())
    cluster.serve()
    cluster.edit(batching={"maxBatchSize": 1000})
    actions = cluster.reconcile()
    assert [type(action) for action in actions] == [UpdateStatus, EmitEvent]
    ready = cluster.condition("Ready")
    assert (ready["status"], ready["reason"], ready["observedGeneration"]) == ("False", "InvalidSpec", 2)
    assert "spec.batching.maxBatchSize: 1000 is out of range" in ready["message"]
    assert cluster.resource["status"]["phase"] == "Running"
    assert cluster.reconcile() == []
    cluster.edit(batching={"maxBatchSize": 16})
    assert applied(cluster.reconcile()) == ["ConfigMap"]


def test_a_status_that_cannot_be_read_keeps_its_phase() -> None:
    cluster = PlayedCluster(model())
    cluster.resource["status"] = {"phase": "Running", "conditions": "none"}
    cluster.reconcile()
    assert cluster.resource["status"]["phase"] == "Running"
    assert cluster.condition("Ready")["reason"] == "InvalidSpec"


def test_the_history_of_transitions_is_bounded() -> None:
    cluster = PlayedCluster(model())
    cluster.reconcile()
    step = {"event": "ResourceAllocated", "from": "Pending", "to": "Running", "time": "2025-01-01T00:00:00Z"}
    cluster.resource["status"]["transitions"] = [step] * TRANSITIONS_KEPT
    cluster.play_pods(ready=True)
    cluster.reconcile()
    transitions = cluster.resource["status"]["transitions"]
    assert len(transitions) == TRANSITIONS_KEPT
    assert transitions[-1]["time"] == "2026-01-01T00:00:02Z"
