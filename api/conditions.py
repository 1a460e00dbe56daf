"""Condition types and reasons of our resources: constants that status, events and docs share."""

from enum import StrEnum

import msgspec


class ConditionType(StrEnum):
    """What a condition speaks of. `True` is the state that a user hopes for, except for RolloutBlocked."""

    READY = "Ready"
    """Every replica serves the newest generation, and none an older one. Mode Batch: the result is there."""
    RESOURCES_ALLOCATED = "ResourcesAllocated"
    """Every pod is bound to a node and holds its devices."""
    ROLLOUT_BLOCKED = "RolloutBlocked"
    """Something that was asked for does not come to be; the message says what. What serves, serves on."""
    TRAFFIC_SETTLED = "TrafficSettled"
    """Every pod that serves reports the newest revision of versions, weights and limits."""
    RUN_ENDED = "RunEnded"
    """The run, or all servers of a model that is stopped, have ended; the message says how. True stays."""
    DATA_SYNCED = "DataSynced"
    """The logs are archived, and the digests of the archives are known. True stays."""


class Reason(StrEnum):
    """Why a condition has its status."""

    ALL_REPLICAS_READY = "AllReplicasReady"
    SCALED_TO_ZERO = "ScaledToZero"
    WAITING_FOR_REPLICAS = "WaitingForReplicas"
    WAITING_FOR_DEPENDENCIES = "WaitingForDependencies"
    DEPENDENCY_CYCLE = "DependencyCycle"
    WAITING_FOR_SCHEDULING = "WaitingForScheduling"
    ALL_PODS_SCHEDULED = "AllPodsScheduled"
    UNSCHEDULABLE = "Unschedulable"
    QUOTA_EXCEEDED = "QuotaExceeded"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CONTAINER_FAILING = "ContainerFailing"
    POD_CREATION_REFUSED = "PodCreationRefused"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    NAME_TAKEN = "NameTaken"
    INVALID_SPEC = "InvalidSpec"
    PROGRESSING = "Progressing"
    REVISION_LIVE = "RevisionLive"
    WAITING_FOR_REVISION = "WaitingForRevision"
    REVISION_REFUSED = "RevisionRefused"
    RUN_IN_PROGRESS = "RunInProgress"
    COMPLETED = "Completed"
    TIMEOUT = "Timeout"
    OUT_OF_MEMORY = "OutOfMemory"
    INPUT_REFUSED = "InputRefused"
    MODEL_REFUSED = "ModelRefused"
    EXECUTION_FAILED = "ExecutionFailed"
    STORAGE_FAILED = "StorageFailed"
    SETTINGS_REFUSED = "SettingsRefused"
    STOPPED = "Stopped"
    POD_FAILED = "PodFailed"
    RESULT_UNVERIFIED = "ResultUnverified"
    WAITING_FOR_ARCHIVE = "WaitingForArchive"
    ARCHIVE_FAILED = "ArchiveFailed"
    ARCHIVED = "Archived"
    STOPPING = "Stopping"
    SERVERS_ENDED = "ServersEnded"
    DRAIN_INCOMPLETE = "DrainIncomplete"
    NO_ARCHIVE = "NoArchive"


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """One condition, in the shape of Kubernetes' meta/v1 Condition. Times are RFC 3339, UTC."""

    type: str
    status: str
    """``True``, ``False`` or ``Unknown``."""
    reason: str
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


def merge_condition(conditions: tuple[Condition, ...], new: Condition) -> tuple[Condition, ...]:
    """Return `conditions` with `new` in its type's place.

    The old transition time is kept while the status stays the same, as Kubernetes' API conventions ask.
    """
    for position, old in enumerate(conditions):
        if old.type == new.type:
            if old.status == new.status:
                new = msgspec.structs.replace(new, last_transition_time=old.last_transition_time)
            return (*conditions[:position], new, *conditions[position + 1 :])
    return (*conditions, new)
