"""A served model that is stopped: its servers are told, their ends gathered, and then no pod is left."""

import hashlib
import json
from typing import Any

import pytest

from mcp2026.api.inference_model import parse_inference_model
from mcp2026.operator.actions import ApplyChild
from mcp2026.operator.canary.looking import look_at
from mcp2026.operator.children import deployment
from mcp2026.operator.dependencies import is_met
from tests.fakes.played_cluster import SETTINGS, model
from tests.fakes.stopping_cluster import DIGEST, StoppingCluster

ARCHIVE = {"folder": "pvc://logs/resnet50"}


def serving(**spec: Any) -> StoppingCluster:
    cluster = StoppingCluster(model(**{"replicas": 2, "logArchive": ARCHIVE, **spec}))
    cluster.serve()
    cluster.run()
    assert cluster.phase == "Running"
    return cluster


@pytest.fixture
def cluster() -> StoppingCluster:
    return serving()


def steps(cluster: StoppingCluster) -> list[str]:
    return [f"{step['event']} {step['to']}" for step in cluster.resource["status"]["transitions"]]


def test_servers_are_told_only_when_the_deployment_will_leave_their_pods_alone(
    cluster: StoppingCluster,
) -> None:
    before = cluster.revision
    cluster.edit(stopped=True)
    actions = cluster.reconcile()
    assert [one.manifest["kind"] for one in actions if isinstance(one, ApplyChild)] == ["Deployment"]
    assert cluster.deployment["spec"]["paused"] is True
    assert not cluster.servers_are_told
    assert cluster.reconcile() == []
    cluster.see_deployment()
    cluster.reconcile()
    assert cluster.servers_are_told
    assert cluster.revision == before + 1
    assert cluster.condition("Ready")["reason"] == "Stopping"


def test_all_end_well_and_then_no_pod_is_left(cluster: StoppingCluster) -> None:
    cluster.stop()
    first, second = cluster.pods
    cluster.end(first)
    cluster.reconcile()
    assert [server["pod"] for server in cluster.servers] == [first]
    assert cluster.phase == "Running"
    assert cluster.condition("RunEnded")["status"] == "False"
    cluster.end(second, restarted=False, archive_sha256="cd" * 32)
    cluster.reconcile()
    assert cluster.phase == "Succeeded"
    assert cluster.condition("RunEnded") == cluster.condition("RunEnded") | {
        "status": "True",
        "reason": "ServersEnded",
        "message": "2 of 2 servers ended with exit code 0, 4 requests were drained",
    }
    assert cluster.deployment["spec"]["replicas"] == 2  # the next step is still to be written
    cluster.reconcile()
    assert cluster.phase == "Completed"
    message = cluster.condition("DataSynced")["message"]
    listed = sorted([f"{DIGEST}  {first}.log.gz\n", f"{'cd' * 32}  {second}.log.gz\n"])
    whole = hashlib.sha256("".join(listed).encode()).hexdigest()
    assert message.startswith(
        f"in pvc://logs/resnet50: {first}.log.gz sha256 {DIGEST}, {second}.log.gz sha256 cd"
    )
    assert message.endswith(f"; sha256 of their list {whole}")
    cluster.reconcile()
    assert cluster.deployment["spec"]["replicas"] == 0
    cluster.play_pods()
    cluster.reconcile()
    assert [cluster.reconcile() for _ in range(3)] == [[]] * 3
    assert steps(cluster) == [
        "ResourceAllocated Running",
        "ExitCodeReported Succeeded",
        "DataSynced Completed",
    ]
    assert len(cluster.servers) == 2
    assert cluster.resource["status"]["replicas"] == 0
    assert [event.reason for event in cluster.told if event.type == "Warning"] == []


def test_what_went_wrong_is_told_when_the_pods_are_gone(cluster: StoppingCluster) -> None:
    cluster.stop()
    first, second = cluster.pods
    cluster.end(
        first, 4, reason="ArchiveFailed", archive_sha256=None, archive_error="No space\nleft " + "x" * 500
    )
    cluster.end(second, 1, reason="DrainIncomplete", message="others were cut off (status 1)")
    cluster.reconcile()
    cluster.reconcile()
    assert cluster.deployment["spec"]["replicas"] == 0
    problems = {server["pod"]: server["problem"] for server in cluster.servers}
    assert problems[first].startswith("No space left xx")
    assert len(problems[first]) == 200
    assert problems[second] == "others were cut off (status 1)"
    message = cluster.condition("RunEnded")["message"]
    assert f"pod {first}: exit code 4 (ArchiveFailed): No space left xx" in message


@pytest.mark.parametrize(
    ("code", "reason", "told"),
    [
        (1, "DrainIncomplete", "DrainIncomplete"),
        (4, "ArchiveFailed", "ArchiveFailed"),
        (143, "DrainIncomplete", "DrainIncomplete"),
    ],
)
def test_the_worst_code_counts(cluster: StoppingCluster, code: int, reason: str, told: str) -> None:
    cluster.stop()
    first, second = cluster.pods
    cluster.end(first, code, reason=reason, archive_sha256=None)
    cluster.end(second)
    cluster.reconcile()
    assert cluster.phase == "Failed"
    ended = cluster.condition("RunEnded")
    assert (ended["status"], ended["reason"]) == ("True", told)
    assert f"pod {first}: exit code {code} ({reason})" in ended["message"]
    assert cluster.condition("DataSynced")["reason"] == "ArchiveFailed"
    cluster.reconcile()
    assert cluster.deployment["spec"]["replicas"] == 0
    warnings = {event.reason for event in cluster.told if event.type == "Warning"}
    assert warnings == {told, "ArchiveFailed"}


def test_a_message_that_differs_from_the_exit_code_is_not_believed(cluster: StoppingCluster) -> None:
    cluster.stop()
    first, second = cluster.pods
    cluster.end(first, 0)
    cluster.end(second, 137, exit_code=0, reason="Stopped")
    cluster.reconcile()
    assert cluster.phase == "Failed"
    assert cluster.condition("RunEnded")["reason"] == "PodFailed"


@pytest.mark.parametrize(
    "said",
    [
        {"exit_code": 1},
        {"exit_code": 0, "reason": "Completed", "served": True},
        {"exit_code": 0, "reason": "Stopped", "served": "yes"},
    ],
)
def test_what_is_no_report_is_waited_for(cluster: StoppingCluster, said: dict[str, Any]) -> None:
    cluster.stop()
    first, second = cluster.pods
    cluster.end(first)
    cluster.end(second, 1, said=said)
    cluster.reconcile()
    assert cluster.phase == "Running"
    assert second in cluster.condition("Ready")["message"]


def test_a_pod_that_is_lost_before_it_reported_is_waited_for_and_its_successor_is_told(
    cluster: StoppingCluster,
) -> None:
    cluster.stop()
    first, second = cluster.pods
    cluster.end(first)
    cluster.lose(second)
    cluster.reconcile()
    assert cluster.phase == "Running"
    assert "1 pods were lost before they reported" in cluster.condition("Ready")["message"]
    cluster.replace("new", like=first)
    cluster.reconcile()
    assert "1 servers drain or have not reported: new" in cluster.condition("Ready")["message"]
    cluster.end("new", served=False, drained=0)
    cluster.reconcile()
    assert cluster.phase == "Succeeded"
    assert "1 of them had served nothing: new" in cluster.condition("RunEnded")["message"]


def test_a_pod_that_is_lost_after_it_reported_takes_nothing_with_it(cluster: StoppingCluster) -> None:
    cluster.stop()
    first, second = cluster.pods
    cluster.end(first, 1)
    cluster.reconcile()
    cluster.lose(first)
    cluster.end(second)
    cluster.reconcile()
    assert cluster.phase == "Failed"
    assert len(cluster.servers) == 2


def test_pods_without_a_node_and_containers_that_never_start_have_nothing_to_report(
    cluster: StoppingCluster,
) -> None:
    cluster.stop()
    first, second = cluster.pods
    cluster.pods[first]["status"]["conditions"][0]["status"] = "False"
    waiting = {"waiting": {"reason": "ImagePullBackOff"}}
    cluster.pods[second]["status"]["containerStatuses"] = [{"name": "runtime", "state": waiting}]
    cluster.reconcile()
    assert cluster.phase == "Succeeded"
    assert cluster.condition("RunEnded")["message"] == "no server ran when the model was stopped"
    assert cluster.condition("DataSynced")["reason"] == "NoArchive"


def test_one_that_fails_again_and_again_has_still_to_report(cluster: StoppingCluster) -> None:
    cluster.stop()
    first, second = cluster.pods
    cluster.end(first)
    cluster.pods[second]["status"]["containerStatuses"] = [
        {
            "name": "runtime",
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1, "message": "out of memory"}},
        }
    ]
    cluster.reconcile()
    assert cluster.phase == "Running"
    assert cluster.condition("RolloutBlocked")["reason"] == "ContainerFailing"


def test_without_a_place_for_logs_it_stays_succeeded_and_its_pods_go() -> None:
    cluster = serving(logArchive=None)
    cluster.stop()
    for pod in cluster.pods:
        cluster.end(pod, archive_sha256=None)
    cluster.reconcile()
    assert cluster.phase == "Succeeded"
    assert cluster.condition("DataSynced") == cluster.condition("DataSynced") | {
        "status": "False",
        "reason": "NoArchive",
        "message": "spec.logArchive is not set: no log is archived",
    }
    cluster.reconcile()
    assert cluster.deployment["spec"]["replicas"] == 0


def test_one_without_replicas_ends_at_once() -> None:
    cluster = serving()
    cluster.edit(replicas=0)
    cluster.reconcile()
    cluster.play_pods()
    cluster.edit(stopped=True)
    cluster.reconcile()
    assert cluster.servers_are_told
    cluster.reconcile()
    assert cluster.phase == "Succeeded"
    assert cluster.condition("RunEnded")["message"] == "no server ran when the model was stopped"


def test_a_model_that_was_never_started_makes_nothing_and_stays_pending() -> None:
    cluster = StoppingCluster(model(stopped=True))
    cluster.reconcile()
    cluster.reconcile()
    assert cluster.children == {}
    assert cluster.phase == "Pending"
    assert cluster.condition("Ready")["reason"] == "Stopped"
    assert cluster.condition("RunEnded")["status"] == "False"
    assert [event for event in cluster.told if event.type == "Warning"] == []
    assert cluster.reconcile() == []


def test_a_model_that_waits_for_another_makes_nothing_when_it_is_stopped() -> None:
    cluster = StoppingCluster(model(dependsOn=["other"]))
    cluster.dependencies = {"other": None}
    cluster.reconcile()
    cluster.edit(stopped=True)
    cluster.dependencies = {"other": {"metadata": {}, "status": {"phase": "Completed"}}}
    cluster.reconcile()
    assert cluster.children == {}
    assert cluster.condition("Ready")["reason"] == "Stopped"


def test_a_pending_model_with_some_pods_ends_them_and_stays_pending() -> None:
    cluster = StoppingCluster(model(replicas=2, logArchive=ARCHIVE))
    cluster.reconcile()
    cluster.play_pods(ready=True)
    first, second = cluster.pods
    cluster.run()
    cluster.pods[second]["status"] = {"conditions": [{"type": "PodScheduled", "status": "False"}]}
    cluster.reconcile()
    assert cluster.phase == "Pending"
    cluster.stop()
    cluster.end(first)
    cluster.reconcile()
    assert cluster.phase == "Pending"
    assert cluster.condition("RunEnded")["status"] == "True"
    assert cluster.condition("DataSynced")["status"] == "True"
    cluster.reconcile()
    assert cluster.deployment["spec"]["replicas"] == 0


def test_neither_an_autoscaler_nor_a_new_operator_nor_a_new_version_touches_the_pods(
    cluster: StoppingCluster,
) -> None:
    template = cluster.deployment["spec"]["template"]
    cluster.stop()
    cluster.edit(
        replicas=7, workers=4, versions=[{"versionId": "v9", "weight": 100, "uri": "pvc://other/9.onnx"}]
    )
    cluster.reconcile()
    assert cluster.deployment["spec"]["replicas"] == 2
    assert cluster.deployment["spec"]["template"] == template


def test_a_canary_is_neither_measured_nor_moved() -> None:
    versions = [
        {"versionId": "v1", "weight": 100, "uri": "pvc://models/1.onnx"},
        {"versionId": "v2", "weight": 0, "uri": "pvc://models/2.onnx"},
    ]
    cluster = serving(versions=versions, canary={"version": "v2"})
    for pod in cluster.pods.values():
        pod["status"]["podIP"] = "10.0.0.1"
    cluster.follow()
    assert look_at(cluster.observed()) is not None
    before = cluster.resource["status"]["canary"]
    cluster.stop()
    assert look_at(cluster.observed()) is None
    for pod in cluster.pods:
        cluster.end(pod)
    cluster.reconcile()
    cluster.reconcile()
    assert cluster.phase == "Completed"
    assert cluster.resource["status"]["canary"] == before


def test_a_deployment_that_is_deleted_meanwhile_comes_back_unpaused_and_its_pods_report(
    cluster: StoppingCluster,
) -> None:
    cluster.stop()
    del cluster.children["Deployment"]
    cluster.pods.clear()
    cluster.reconcile()
    assert cluster.phase == "Running"
    assert "paused" not in cluster.deployment["spec"]  # its controller makes pods
    assert cluster.servers_are_told
    cluster.play_pods()
    cluster.run()
    cluster.reconcile()
    assert cluster.deployment["spec"]["paused"] is True
    for pod in cluster.pods:
        cluster.end(pod, served=False)
    cluster.reconcile()
    assert cluster.phase == "Succeeded"
    assert "2 of them had served nothing" in cluster.condition("RunEnded")["message"]


def test_a_config_map_that_is_deleted_says_stopped_again(cluster: StoppingCluster) -> None:
    cluster.stop()
    known = cluster.revision
    del cluster.children["ConfigMap"]
    cluster.see_deployment()
    cluster.reconcile()
    assert cluster.servers_are_told
    assert cluster.revision == known + 1


def test_deletion_stays_deletion(cluster: StoppingCluster) -> None:
    cluster.stop()
    cluster.resource["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert cluster.reconcile() == []


def test_servers_that_do_not_know_the_word_are_named(cluster: StoppingCluster) -> None:
    cluster.stop()
    pod = next(iter(cluster.pods))
    cluster.report(pod, live=1, failed=cluster.revision, problem="stopped: unknown field")
    cluster.reconcile()
    assert cluster.condition("RolloutBlocked")["reason"] == "RevisionRefused"


@pytest.mark.parametrize(
    ("phase", "met"), [("Running", False), ("Succeeded", True), ("Failed", False), ("Completed", True)]
)
def test_dependents_wait_while_it_stops_and_may_start_when_it_is_done(phase: str, met: bool) -> None:
    stopped = {
        "metadata": {},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "False"}]},
    }
    assert is_met(stopped) is met


def test_the_place_of_logs_is_mounted_writable_and_told_to_the_server() -> None:
    spec = deployment(
        parse_inference_model(model(logArchive={"folder": "pvc://models/logs", "credentialsSecret": "s3"})),
        SETTINGS,
    )["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["args"][-2:] == ["--log-archive", "/mnt/models/models/logs"]
    assert {"name": "models-0", "mountPath": "/mnt/models/models"} in container["volumeMounts"]
    assert {"name": "models-0", "persistentVolumeClaim": {"claimName": "models"}} in spec["volumes"]
    assert spec["securityContext"]["fsGroup"] == 65532
    assert "AWS_ACCESS_KEY_ID" in [variable["name"] for variable in container["env"]]
    remote = deployment(parse_inference_model(model(logArchive={"folder": "s3://logs/a"})), SETTINGS)
    (container,) = remote["spec"]["template"]["spec"]["containers"]
    assert container["args"][-2:] == ["--log-archive", "s3://logs/a"]
    assert "fsGroup" not in json.dumps(remote)
