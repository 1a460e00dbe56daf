"""The life of a model of mode Batch: from the first apply through attempts, crashes and losses to its end."""

from collections.abc import Callable
from typing import Any

import pytest

from mcp2026.operator.actions import ApplyChild, RequeueAfter, UpdateStatus
from tests.fakes.played_job import ARCHIVE_SHA256, OUTPUT_SHA256, PlayedJob, batch_model, last_word

CHILDREN = ["ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Job"]


def applied(actions: list[Any]) -> list[str]:
    return [action.manifest["kind"] for action in actions if isinstance(action, ApplyChild)]


def steps(cluster: PlayedJob) -> list[str]:
    return [step["event"] for step in cluster.resource["status"]["transitions"]]


def succeed(cluster: PlayedJob, **changes: Any) -> None:
    cluster.end_attempt(0, last_word(**changes))
    cluster.end_job()
    cluster.settle()


def test_the_first_reconcile_makes_all_children_the_job_last() -> None:
    cluster = PlayedJob()
    assert applied(cluster.reconcile()) == CHILDREN
    assert cluster.phase == "Pending"
    cluster.settle()
    assert cluster.condition("Ready")["reason"] == "WaitingForScheduling"
    assert cluster.condition("RunEnded")["status"] == "False"


def test_a_pod_without_a_node_allocates_nothing() -> None:
    cluster = PlayedJob()
    cluster.settle()
    cluster.start_attempt(scheduled=False)
    cluster.settle()
    assert cluster.phase == "Pending"
    assert cluster.condition("ResourcesAllocated")["message"] == "the pod is not bound to a node yet"


def test_a_run_goes_through_running_and_succeeded_to_completed() -> None:
    cluster = PlayedJob()
    cluster.run()
    assert cluster.phase == "Running"
    assert cluster.condition("ResourcesAllocated")["message"] == "pod nightly-0 is bound to node-1"
    assert cluster.condition("Ready")["status"] == "False"
    succeed(cluster)
    assert cluster.phase == "Completed"
    assert steps(cluster) == ["ResourceAllocated", "ExitCodeReported", "DataSynced"]
    assert cluster.batch["rowsDone"] == cluster.batch["rowsTotal"] == 100
    assert cluster.batch["attempts"] == 1
    assert cluster.condition("Ready")["status"] == "True"
    assert OUTPUT_SHA256 in cluster.condition("RunEnded")["message"]
    assert cluster.condition("DataSynced")["message"] == (
        f"the log is pvc://data/results.npy.log.gz, sha256 {ARCHIVE_SHA256}"
    )
    assert cluster.condition("ResourcesAllocated")["status"] == "False"
    assert cluster.job["spec"]["ttlSecondsAfterFinished"] == 3600
    assert [event.reason for event in cluster.told] == [
        "ResourceAllocated",
        "ExitCodeReported",
        "Completed",
        "Archived",
        "DataSynced",
    ]


def test_each_step_is_a_write_of_its_own() -> None:
    cluster = PlayedJob()
    cluster.run()
    cluster.end_attempt(0, last_word())
    cluster.end_job()
    cluster.reconcile()
    assert cluster.phase == "Succeeded"
    cluster.reconcile()
    assert cluster.phase == "Completed"


def test_at_rest_nothing_is_written() -> None:
    cluster = PlayedJob()
    cluster.run()
    assert [cluster.reconcile() for _ in range(3)] == [[]] * 3
    succeed(cluster)
    assert [cluster.reconcile() for _ in range(3)] == [[]] * 3


def test_an_exit_code_is_not_believed_before_the_job_has_ended() -> None:
    cluster = PlayedJob()
    cluster.run()
    cluster.end_attempt(1, last_word(exit_code=1, reason="StorageFailed", sha256=None))
    cluster.settle()
    assert cluster.phase == "Running"
    cluster.start_attempt()
    cluster.later(20)
    cluster.settle()
    assert cluster.batch["attempts"] == 2
    succeed(cluster, rows_resumed=40)
    assert cluster.phase == "Completed"
    assert cluster.batch["attempts"] == 2


Fail = Callable[[PlayedJob], None]


def fails(
    code: int, said: str, why: str = "", job_reason: str = "BackoffLimitExceeded", job_message: str = "x"
) -> Fail:
    def play(cluster: PlayedJob) -> None:
        cluster.end_attempt(code, said, why)
        cluster.end_job("Failed", job_reason, job_message)

    return play


def said(code: int, reason: str, message: str) -> str:
    return last_word(exit_code=code, reason=reason, message=message, rows=40, sha256=None)


def evicted(cluster: PlayedJob) -> None:
    cluster.end_attempt(1)
    pod = cluster.pods["nightly-0"]
    pod["status"] = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"}
    cluster.end_job("Failed", "BackoffLimitExceeded", "Job has reached the backoff limit")


def deadline(cluster: PlayedJob) -> None:
    cluster.pods.clear()
    cluster.end_job("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")


def unverified(**changes: Any) -> Fail:
    def play(cluster: PlayedJob) -> None:
        cluster.end_attempt(0, last_word(**changes))
        cluster.end_job()

    return play


def silent(cluster: PlayedJob) -> None:
    cluster.end_attempt(0, "nothing that is JSON")
    cluster.end_job()


FAILURES: list[tuple[str, Fail, str, str]] = [
    ("the data set is refused", fails(3, said(3, "InputRefused", "row 7: x"), job_reason="PodFailurePolicy"),
     "InputRefused", "exit code 3: row 7: x"),
    ("a model cannot be loaded", fails(1, said(1, "ModelRefused", "no such file")),
     "ModelRefused", "exit code 1: no such file"),
    ("the program times out", fails(124, said(124, "Timeout", "it took long")), "Timeout", "exit code 124"),
    ("the Job's deadline ends its pods", deadline, "Timeout", "spec.batch.timeoutSeconds is over"),
    ("the deadline stops a pod that says so",
     fails(143, said(143, "Stopped", "40 of 100 rows are done"), job_reason="DeadlineExceeded"),
     "Timeout", "spec.batch.timeoutSeconds is over: 40 of 100 rows are done"),
    ("the kernel kills it", fails(137, "", "OOMKilled"), "OutOfMemory",
     "exit code 137: the container needed more memory than its limit"),
    ("a batch does not fit", fails(1, said(1, "OutOfMemory", "too large")), "OutOfMemory", "too large"),
    ("it is killed and says nothing", fails(137, ""), "PodFailed", "exit code 137 (Error)"),
    ("it dies with a traceback", fails(1, "Traceback ..."), "PodFailed", "exit code 1 (Error): Traceback"),
    ("it claims a reason that there is not", fails(1, said(1, "Sunspots", "?")), "PodFailed", "exit code 1"),
    ("a failure claims to be complete", fails(1, last_word()), "PodFailed", "exit code 1"),
    ("its pods are evicted", evicted, "PodFailed", "Evicted The node was low on memory"),
    ("success without a word", silent, "ResultUnverified", "did not say what it made"),
    ("success with too few rows", unverified(rows=99), "ResultUnverified", "99 of 100 rows"),
    ("success without any row", unverified(rows=0, rows_total=0), "ResultUnverified", "0 of 0 rows"),
    ("success without a digest", unverified(sha256=None), "ResultUnverified", "no digest"),
    ("success with a torn digest", unverified(sha256="ab"), "ResultUnverified", "no digest"),
    ("success that says another code", unverified(exit_code=1), "ResultUnverified", "exit code 0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fail", "reason", "words"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES]
)
def test_a_run_that_fails_says_why(fail: Fail, reason: str, words: str) -> None:
    cluster = PlayedJob()
    cluster.run()
    fail(cluster)
    cluster.settle()
    assert cluster.phase == "Failed"
    assert steps(cluster) == ["ResourceAllocated", "ExitCodeReported"]
    for kind in ("Ready", "RunEnded"):
        assert cluster.condition(kind)["reason"] == reason
        assert words in cluster.condition(kind)["message"]
    warning = next(event for event in cluster.told if event.type == "Warning")
    assert (warning.reason, words in warning.message) == (reason, True)
    assert "ttlSecondsAfterFinished" not in cluster.job["spec"]


def test_what_has_failed_stays_failed_whatever_becomes_of_its_job() -> None:
    cluster = PlayedJob()
    cluster.run()
    fails(1, said(1, "ModelRefused", "no such file"))(cluster)
    cluster.settle()
    ended = cluster.condition("RunEnded")
    cluster.collect_job()
    cluster.settle()
    assert (cluster.phase, cluster.condition("RunEnded")) == ("Failed", ended)
    assert "Job" not in cluster.children
    assert cluster.batch["attempts"] == 1


def test_a_completed_model_outlives_its_job() -> None:
    cluster = PlayedJob()
    cluster.run()
    succeed(cluster)
    status = cluster.resource["status"]
    cluster.collect_job()
    assert cluster.reconcile() == []
    assert cluster.resource["status"] == {**status, "replicas": 0}


def test_a_job_that_is_deleted_by_hand_is_made_anew_and_goes_on() -> None:
    cluster = PlayedJob()
    cluster.run()
    cluster.tell_progress(40)
    cluster.later(20)
    cluster.settle()
    cluster.collect_job()
    assert applied(cluster.reconcile()) == ["Job"]
    cluster.settle()
    assert (cluster.phase, cluster.batch["rowsDone"]) == ("Running", 40)
    cluster.start_attempt()
    cluster.settle()
    succeed(cluster, rows_resumed=40)
    assert (cluster.phase, cluster.jobs_made) == ("Completed", 2)


def test_evidence_that_went_with_the_pod_is_made_again() -> None:
    cluster = PlayedJob()
    cluster.run()
    cluster.end_attempt(0, last_word())
    cluster.end_job()
    cluster.pods.clear()
    cluster.settle()
    assert cluster.phase == "Running"
    assert cluster.job["spec"]["ttlSecondsAfterFinished"] == 0
    cluster.collect_job()
    cluster.settle()
    assert "ttlSecondsAfterFinished" not in cluster.job["spec"]
    cluster.start_attempt()
    succeed(cluster)
    assert cluster.phase == "Completed"


def test_a_job_that_ended_before_any_pod_had_a_node_is_made_anew() -> None:
    cluster = PlayedJob()
    cluster.settle()
    cluster.end_job("Failed", "BackoffLimitExceeded")
    cluster.settle()
    assert (cluster.phase, cluster.job["spec"]["ttlSecondsAfterFinished"]) == ("Pending", 0)


def test_an_archive_that_fails_keeps_it_succeeded_until_a_new_job_archives() -> None:
    cluster = PlayedJob()
    cluster.run()
    succeed(cluster, archive_sha256=None, archive_error="the volume is full")
    assert cluster.phase == "Succeeded"
    assert cluster.condition("DataSynced")["reason"] == "ArchiveFailed"
    assert "the volume is full" in cluster.condition("DataSynced")["message"]
    assert cluster.condition("Ready")["status"] == "True"
    assert "ttlSecondsAfterFinished" not in cluster.job["spec"]
    cluster.collect_job()
    cluster.settle()
    cluster.start_attempt()
    cluster.settle()
    assert cluster.phase == "Succeeded"
    succeed(cluster, rows_resumed=100)
    assert cluster.phase == "Completed"


def test_a_repeated_job_that_fails_does_not_undo_success() -> None:
    cluster = PlayedJob()
    cluster.run()
    succeed(cluster, archive_sha256=None, archive_error="the volume is full")
    cluster.collect_job()
    cluster.settle()
    cluster.start_attempt()
    fails(3, said(3, "InputRefused", "gone"))(cluster)
    cluster.settle()
    assert cluster.phase == "Succeeded"
    assert cluster.condition("RunEnded")["reason"] == "Completed"


def test_pods_of_a_job_that_is_gone_are_no_evidence() -> None:
    cluster = PlayedJob()
    cluster.run()
    old = cluster.pods["nightly-0"]
    cluster.end_attempt(0, last_word())
    cluster.collect_job()
    cluster.settle()
    cluster.pods["nightly-0"] = old
    cluster.end_job("Failed", "BackoffLimitExceeded", "no pods")
    cluster.settle()
    assert cluster.phase == "Failed"
    assert cluster.condition("RunEnded")["message"] == "BackoffLimitExceeded: no pods"


def test_nothing_is_allocated_while_a_dependency_is_not_met() -> None:
    cluster = PlayedJob(batch_model(dependsOn=["first"]))
    cluster.dependencies = {"first": None}
    assert applied(cluster.reconcile()) == []
    assert cluster.condition("Ready")["reason"] == "WaitingForDependencies"
    cluster.dependencies = {"first": {"metadata": {"name": "first"}, "status": {"phase": "Completed"}}}
    assert applied(cluster.reconcile()) == CHILDREN


def test_a_dependency_that_fails_later_does_not_keep_a_run_from_going_on() -> None:
    cluster = PlayedJob(batch_model(dependsOn=["first"]))
    cluster.dependencies = {"first": {"metadata": {"name": "first"}, "status": {"phase": "Completed"}}}
    cluster.run()
    cluster.dependencies = {"first": None}
    cluster.collect_job()
    assert "Job" in applied(cluster.reconcile())
    assert cluster.phase == "Running"


def test_the_timeout_counts_from_running_and_survives_a_new_job() -> None:
    cluster = PlayedJob(batch_model(batch={"timeoutSeconds": 600}))
    cluster.settle()
    assert "activeDeadlineSeconds" not in cluster.job["spec"]
    cluster.later(100)
    cluster.start_attempt()
    cluster.settle()
    waited = cluster.job["spec"]["activeDeadlineSeconds"] - 600
    assert 100 <= waited <= 105
    cluster.later(50)
    cluster.collect_job()
    cluster.settle()
    assert 540 <= cluster.job["spec"]["activeDeadlineSeconds"] <= 550
    cluster.later(10_000)
    cluster.collect_job()
    cluster.settle()
    assert cluster.job["spec"]["activeDeadlineSeconds"] == 1


def test_a_job_that_only_archives_has_no_deadline() -> None:
    cluster = PlayedJob(batch_model(batch={"timeoutSeconds": 600}))
    cluster.run()
    succeed(cluster, archive_sha256=None, archive_error="the volume is full")
    assert cluster.job["spec"]["activeDeadlineSeconds"] >= 600
    cluster.later(10_000)
    cluster.collect_job()
    cluster.settle()
    assert "activeDeadlineSeconds" not in cluster.job["spec"]


def test_progress_is_written_at_most_every_ten_seconds() -> None:
    cluster = PlayedJob()
    cluster.run()
    cluster.later(20)
    cluster.tell_progress(10)
    cluster.reconcile()
    assert (cluster.batch["rowsDone"], cluster.batch["rowsTotal"]) == (10, 100)
    cluster.tell_progress(20)
    (again,) = cluster.reconcile()
    assert isinstance(again, RequeueAfter)
    assert 0 < again.seconds <= 10
    assert cluster.batch["rowsDone"] == 10
    cluster.later(again.seconds)
    assert any(isinstance(action, UpdateStatus) for action in cluster.reconcile())
    assert cluster.batch["rowsDone"] == 20


def test_rows_that_were_done_stay_done_in_the_status() -> None:
    cluster = PlayedJob()
    cluster.run()
    cluster.tell_progress(40)
    cluster.later(20)
    cluster.settle()
    cluster.end_attempt(137)
    cluster.start_attempt()
    cluster.later(20)
    cluster.settle()
    assert (cluster.batch["rowsDone"], cluster.batch["attempts"]) == (40, 1 + 1)


ODD_REPORTS = [
    "",
    "{",
    "[]",
    '{"rowsDone": 5}',
    '{"rowsDone": 9, "rowsTotal": 5}',
    '{"rowsDone": -1, "rowsTotal": 5}',
]


@pytest.mark.parametrize("report", ODD_REPORTS)
def test_a_report_that_cannot_be_true_is_passed_over(report: str) -> None:
    cluster = PlayedJob()
    cluster.run()
    cluster.tell_progress(40)
    cluster.leases["nightly-0"]["metadata"]["annotations"]["mcp2026.io/batch-progress"] = report
    cluster.later(20)
    cluster.settle()
    assert cluster.batch["rowsDone"] == 0


def test_a_pod_that_cannot_start_is_named() -> None:
    cluster = PlayedJob()
    cluster.run()
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    cluster.pods["nightly-0"]["status"]["containerStatuses"] = [
        {"name": "runtime", "image": "x:1", "state": {"waiting": waiting}}
    ]
    cluster.settle()
    assert cluster.condition("RolloutBlocked")["reason"] == "ImagePullFailed"
    assert cluster.condition("Ready")["reason"] == "ImagePullFailed"


def test_a_newer_operator_leaves_the_template_of_a_running_job_as_it_is() -> None:
    cluster = PlayedJob()
    cluster.run()
    template = cluster.job["spec"]["template"]
    template["spec"]["containers"][0]["image"] = "registry.example/mcp2026:0"
    template["metadata"]["annotations"]["mcp2026.io/manifest-digest"] = "of an older template"
    cluster.job["spec"]["podFailurePolicy"]["rules"].pop()
    cluster.settle()
    assert len(cluster.job["spec"]["podFailurePolicy"]["rules"]) == 1
    assert cluster.job["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/mcp2026:0"
    assert cluster.reconcile() == []


def plays() -> list[Callable[[PlayedJob], Any]]:
    """What the cluster does by itself in a life with one attempt that fails."""
    return [
        lambda cluster: cluster.start_attempt(),
        lambda cluster: cluster.end_attempt(1, said(1, "StorageFailed", "full")),
        lambda cluster: cluster.start_attempt(),
        lambda cluster: cluster.tell_progress(60),
        lambda cluster: cluster.end_attempt(0, last_word()),
        lambda cluster: cluster.end_job(),
    ]


@pytest.mark.parametrize("seen", range(2**6))
def test_whatever_an_operator_has_missed_the_life_is_the_same(seen: int) -> None:
    cluster = PlayedJob()
    cluster.settle()
    for position, play in enumerate(plays()):
        play(cluster)
        cluster.later(15)
        if seen >> position & 1:
            cluster.settle()
    cluster.settle()
    assert (cluster.phase, cluster.jobs_made) == ("Completed", 1)
    assert steps(cluster) == ["ResourceAllocated", "ExitCodeReported", "DataSynced"]
    assert (cluster.batch["rowsDone"], cluster.batch["attempts"]) == (100, 2)


@pytest.mark.parametrize("carried_out", range(8))
def test_an_operator_that_dies_between_two_writes_is_followed_by_one_that_goes_on(carried_out: int) -> None:
    cluster = PlayedJob()
    for play in (lambda _: None, *plays()):
        play(cluster)
        for _ in range(3):
            for action in cluster.decide()[:carried_out]:
                cluster.carry_out(action)
            cluster.later(15)
        cluster.settle()
    assert (cluster.phase, cluster.jobs_made) == ("Completed", 1)
    assert steps(cluster) == ["ResourceAllocated", "ExitCodeReported", "DataSynced"]
