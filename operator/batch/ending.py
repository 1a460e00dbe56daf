"""How a run ended: from the Job, its last pod and that pod's message to evidence for the life cycle."""

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from mcp2026.api.conditions import Reason
from mcp2026.api.lifecycle import ExitCodeReported, ExitReason
from mcp2026.operator.children.job import CONTAINER
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import at, condition_of

_SHA256 = re.compile(r"[0-9a-f]{64}")
_TOLD_CHARACTERS = 2000
_EXIT_TIMEOUT = 124
_EXIT_UNKNOWN = 255
"""Of a pod that is gone, or that ended without running its container."""
_SAID: dict[str, Reason] = {
    str(reason): reason
    for reason in (
        Reason.COMPLETED,
        Reason.TIMEOUT,
        Reason.OUT_OF_MEMORY,
        Reason.INPUT_REFUSED,
        Reason.MODEL_REFUSED,
        Reason.EXECUTION_FAILED,
        Reason.STORAGE_FAILED,
        Reason.SETTINGS_REFUSED,
        Reason.STOPPED,
    )
}
"""The reasons that `mcp2026-batch` gives."""
_CAUSES = {Reason.TIMEOUT: ExitReason.TIMEOUT, Reason.OUT_OF_MEMORY: ExitReason.OUT_OF_MEMORY}


class LastWord(msgspec.Struct, frozen=True):
    """The line of JSON that `mcp2026-batch` leaves (docs/batch-mode.md), as far as it matters here."""

    exit_code: int
    reason: str
    message: str = ""
    rows: int = 0
    rows_total: int = 0
    sha256: str | None = None
    archive_sha256: str | None = None
    archive_error: str | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended for good."""

    exit_code: int
    reason: Reason
    message: str
    validated: bool = False
    """The output is there with its digest, and has a result for every row."""
    rows: int = 0
    rows_total: int = 0
    archive_sha256: str | None = None
    archive_error: str | None = None

    @property
    def event(self) -> ExitCodeReported:
        """The evidence for the life cycle."""
        return ExitCodeReported(self.exit_code, self.validated, _CAUSES.get(self.reason, ExitReason.EXITED))


def has_ended(job: Manifest | None) -> bool:
    """Say whether a Job makes no more attempts."""
    return _holds(job, "Complete") or _holds(job, "Failed")


def has_succeeded(job: Manifest | None) -> bool:
    """Say whether a Job's pod ended with exit code 0."""
    return _holds(job, "Complete")


def ending_of(job: Manifest | None, pods: tuple[Manifest, ...]) -> Ending | None:
    """Return how a run ended, or None: it has not, or nobody can say any more that it succeeded.

    `pods`: those of this Job, in any order.
    """
    if not has_ended(job):
        return None
    last = _last_ended(pods, good=has_succeeded(job))
    if has_succeeded(job):
        return None if last is None else _success(last)
    return _failure(condition_of(job, "Failed"), last)


def of_job(pods: tuple[Manifest, ...], job: Manifest | None) -> tuple[Manifest, ...]:
    """Return the pods that a Job made; pods of one that was deleted are of no account."""
    uid = at(job, "metadata", "uid")
    return tuple(
        pod
        for pod in pods
        if uid is not None
        and any(owner.get("uid") == uid for owner in at(pod, "metadata", "ownerReferences") or [])
    )


def last_word(pod: Manifest) -> LastWord | None:
    """Return what the run in `pod` left to say, if it is one of its lines."""
    message = at(_terminated(pod), "message")
    try:
        return msgspec.json.decode(message, type=LastWord) if isinstance(message, str) else None
    except msgspec.DecodeError:
        return None


def _holds(job: Manifest | None, kind: str) -> bool:
    return bool(condition_of(job, kind).get("status") == "True")


def _last_ended(pods: tuple[Manifest, ...], *, good: bool) -> Manifest | None:
    phase = "Succeeded" if good else "Failed"
    ended = [pod for pod in pods if at(pod, "status", "phase") == phase]
    return max(ended, key=_order, default=None)


def _order(pod: Manifest) -> tuple[str, str, str]:
    created = str(at(pod, "metadata", "creationTimestamp") or "")
    return str(at(_terminated(pod), "finishedAt") or created), created, str(pod["metadata"]["name"])


def _terminated(pod: Manifest | None) -> dict[str, Any]:
    for container in at(pod, "status", "containerStatuses") or []:
        if container.get("name") == CONTAINER:
            return at(container, "state", "terminated") or {}
    return {}


def _success(pod: Manifest) -> Ending:
    said = last_word(pod)
    if said is None:
        return Ending(0, Reason.RESULT_UNVERIFIED, "exit code 0, but the run did not say what it made")
    complete = 0 < said.rows == said.rows_total
    digested = _SHA256.fullmatch(said.sha256 or "") is not None
    if said.exit_code != 0 or said.reason != Reason.COMPLETED or not complete or not digested:
        message = (
            f"exit code 0, but the run said {_cut(said.reason)} with {said.rows} of {said.rows_total} rows "
            f"and {'the' if digested else 'no'} digest of the output"
        )
        return _with(said, Ending(0, Reason.RESULT_UNVERIFIED, message))
    message = f"{said.rows} rows are done, sha256 of the output {said.sha256}"
    return _with(said, Ending(0, Reason.COMPLETED, message, validated=True))


def _failure(failed: dict[str, Any], last: Manifest | None) -> Ending:
    terminated, said = _terminated(last), None if last is None else last_word(last)
    code = int(terminated.get("exitCode") or 0) or _EXIT_UNKNOWN
    job_says = f"{failed.get('reason', 'Failed')}: {failed.get('message', '')}".strip(" :")
    if failed.get("reason") == "DeadlineExceeded":
        message = "spec.batch.timeoutSeconds is over"
        if said is not None:
            message += f": {_cut(said.message)}"
        return _with(said, Ending(_EXIT_TIMEOUT, Reason.TIMEOUT, message))
    if terminated.get("reason") == "OOMKilled":
        message = f"exit code {code}: the container needed more memory than its limit; {job_says}"
        return Ending(code, Reason.OUT_OF_MEMORY, message)
    if said is not None and said.reason in _SAID and said.reason != Reason.COMPLETED:
        return _with(said, Ending(code, _SAID[said.reason], f"exit code {code}: {_cut(said.message)}"))
    if terminated:
        words = _cut(str(terminated.get("message") or "").strip()) or job_says
        return Ending(code, Reason.POD_FAILED, f"exit code {code} ({terminated.get('reason')}): {words}")
    why = f"{at(last, 'status', 'reason') or ''} {at(last, 'status', 'message') or ''}".strip()
    return Ending(code, Reason.POD_FAILED, f"{_cut(why)}; {job_says}" if why else job_says)


def _with(said: LastWord | None, ending: Ending) -> Ending:
    """Return `ending` with what the run said of rows and archive."""
    if said is None:
        return ending
    return Ending(
        ending.exit_code,
        ending.reason,
        ending.message,
        ending.validated,
        max(said.rows, 0),
        max(said.rows_total, 0),
        said.archive_sha256 if _SHA256.fullmatch(said.archive_sha256 or "") else None,
        said.archive_error,
    )


def _cut(text: str) -> str:
    return text if len(text) <= _TOLD_CHARACTERS else text[:_TOLD_CHARACTERS] + " …"
