"""Where a model that is stopped stands: its conditions. What ended stays so, whatever becomes of the pods."""

from dataclasses import dataclass

import msgspec

from mcp2026.api.conditions import Condition, ConditionType, Reason
from mcp2026.api.inference_model import InferenceModelStatus
from mcp2026.api.stopping import LogArchive
from mcp2026.operator.situation import Blocked, Situation
from mcp2026.operator.stopping.reports import Ending, named

LISTED = 100
"""So many archives a message lists; all of them are in `status.endedServers`."""


@dataclass(frozen=True, slots=True)
class StopStanding:
    """What the conditions are made from."""

    situation: Situation
    status: InferenceModelStatus
    """With the phase that holds now, and the conditions as they were."""
    ended: bool
    awaited: tuple[str, ...]
    """Pods that have still to report."""
    missing: int
    """Pods that were lost before they reported, and are not replaced yet."""
    told: bool
    """Whether the servers were told to stop."""
    allocated: bool
    """Every pod is bound to a node."""
    rollout: Blocked | None = None
    """What keeps a pod from coming up."""


def conditions(standing: StopStanding) -> tuple[Condition, ...]:
    """Return all conditions, without times."""
    return (
        _ready(standing),
        _resources_allocated(standing),
        _rollout_blocked(standing),
        _condition(standing, ConditionType.TRAFFIC_SETTLED, False, *_present(standing)),
        _run_ended(standing),
        _data_synced(standing),
    )


def _present(standing: StopStanding) -> tuple[Reason, str]:
    """Return where the end is."""
    if not standing.situation.started:
        return Reason.STOPPED, "spec.stopped is true: nothing is allocated"
    if standing.ended:
        return Reason.STOPPED, "the servers have ended"
    if not standing.told:
        return Reason.STOPPING, "the Deployment is being paused"
    waits = []
    if standing.awaited:
        waits.append(f"{len(standing.awaited)} servers drain or have not reported: {named(standing.awaited)}")
    if standing.missing:
        waits.append(f"{standing.missing} pods were lost before they reported, and are replaced")
    return Reason.STOPPING, "; ".join(waits) or "the servers have ended"


def _ready(standing: StopStanding) -> Condition:
    kind = ConditionType.READY
    if refused := standing.situation.refused():
        return _condition(standing, kind, False, refused.reason, refused.message)
    return _condition(standing, kind, False, *_present(standing))


def _resources_allocated(standing: StopStanding) -> Condition:
    holds = standing.allocated and not standing.ended
    reason, message = _present(standing)
    if holds:
        return _condition(
            standing, ConditionType.RESOURCES_ALLOCATED, True, Reason.ALL_PODS_SCHEDULED, message
        )
    return _condition(standing, ConditionType.RESOURCES_ALLOCATED, False, reason, message)


def _rollout_blocked(standing: StopStanding) -> Condition:
    blocked = standing.situation.refused() or (None if standing.ended else standing.rollout)
    if blocked is not None:
        return _condition(standing, ConditionType.ROLLOUT_BLOCKED, True, blocked.reason, blocked.message)
    return _condition(standing, ConditionType.ROLLOUT_BLOCKED, False, Reason.PROGRESSING, "")


def _run_ended(standing: StopStanding) -> Condition:
    kind = ConditionType.RUN_ENDED
    if known := _known(standing, kind):
        return known
    if not standing.ended:
        return _condition(standing, kind, False, *_present(standing))
    ending = Ending(standing.status.ended_servers)
    return _condition(standing, kind, True, ending.reason, ending.message)


def _data_synced(standing: StopStanding) -> Condition:
    kind = ConditionType.DATA_SYNCED
    if known := _known(standing, kind):
        return known
    if not standing.ended:
        return _condition(standing, kind, False, Reason.WAITING_FOR_ARCHIVE, "")
    ending, archive = Ending(standing.status.ended_servers), standing.situation.model.spec.log_archive
    if ending.digest is not None:
        return _condition(standing, kind, True, Reason.ARCHIVED, _archives(ending, archive))
    if not ending.servers:
        return _condition(standing, kind, False, Reason.NO_ARCHIVE, "no server ran, so there is no log")
    if archive is None:
        return _condition(
            standing, kind, False, Reason.NO_ARCHIVE, "spec.logArchive is not set: no log is archived"
        )
    message = f"the logs of these pods are not archived: {named(ending.unarchived)}"
    return _condition(standing, kind, False, Reason.ARCHIVE_FAILED, message)


def _archives(ending: Ending, archive: LogArchive | None) -> str:
    place = archive.folder if archive else "its place"
    files = [f"{server.pod}.log.gz sha256 {server.archive_sha256}" for server in ending.servers]
    more = f", {len(files) - LISTED} more" if len(files) > LISTED else ""
    whole = f"; sha256 of their list {ending.digest}" if len(files) > 1 else ""
    return f"in {place}: {', '.join(files[:LISTED])}{more}{whole}"


def _known(standing: StopStanding, kind: ConditionType) -> Condition | None:
    for known in standing.status.conditions:
        if known.type == kind and known.status == "True":
            return msgspec.structs.replace(known, observed_generation=standing.situation.model.generation)
    return None


def _condition(
    standing: StopStanding, kind: ConditionType, holds: bool, reason: Reason, message: str
) -> Condition:
    return Condition(
        type=kind,
        status="True" if holds else "False",
        reason=reason,
        message=message,
        observed_generation=standing.situation.model.generation,
    )
