"""How far a run is, from its Job and what the pod of the present attempt reports on its Lease."""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from mcp2026.api.batch_run import BatchStatus
from mcp2026.api.names import BATCH_PROGRESS_ANNOTATION
from mcp2026.operator.batch.ending import Ending
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import at
from mcp2026.operator.progress import timestamp

WRITE_SECONDS = 10.0
"""So long the numbers in the status stay as they are, unless something else changes as well."""
_LARGEST = 2**53


class _Progress(msgspec.Struct, frozen=True, rename="camel"):
    """What a pod reports."""

    rows_done: int
    rows_total: int


def observed_counts(
    old: BatchStatus,
    job: Manifest | None,
    pods: tuple[Manifest, ...],
    leases: Mapping[str, Manifest],
    ending: Ending | None,
) -> BatchStatus:
    """Return the present numbers, with the time of the old ones.

    Rows that were done stay done, whatever a new attempt knows of them yet.
    """
    told = [(ending.rows, ending.rows_total)] if ending else [_reported(pod, leases) for pod in pods]
    done, total = max(told, default=(0, 0))
    attempts = sum(int(at(job, "status", field) or 0) for field in ("active", "failed", "succeeded"))
    return msgspec.structs.replace(
        old,
        rows_done=max(old.rows_done, done),
        rows_total=max(old.rows_total, total),
        attempts=attempts if job is not None else old.attempts,
    )


def seconds_until_due(old: BatchStatus, now: datetime) -> float:
    """Return after how many seconds new numbers may be written; 0: now."""
    try:
        since = (now - datetime.fromisoformat(old.updated_time)).total_seconds()
    except (ValueError, TypeError):
        return 0.0
    return max(WRITE_SECONDS - since, 0.0) if since >= 0 else 0.0


def at_time(counts: BatchStatus, now: datetime) -> BatchStatus:
    """Return `counts` as observed now."""
    return msgspec.structs.replace(counts, updated_time=timestamp(now.astimezone(UTC)))


def _reported(pod: Manifest, leases: Mapping[str, Manifest]) -> tuple[int, int]:
    lease = leases.get(str(pod["metadata"]["name"]))
    if lease is None or at(lease, "spec", "holderIdentity") != at(pod, "metadata", "uid"):
        return 0, 0
    text = at(lease, "metadata", "annotations", BATCH_PROGRESS_ANNOTATION)
    try:
        progress = msgspec.json.decode(text, type=_Progress) if isinstance(text, str) else _Progress(0, 0)
    except msgspec.DecodeError:
        return 0, 0
    plausible = 0 <= progress.rows_done <= progress.rows_total <= _LARGEST
    return (progress.rows_done, progress.rows_total) if plausible else (0, 0)
