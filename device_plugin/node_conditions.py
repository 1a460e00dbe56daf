"""The conditions of `GPUTopology`: are the GPUs well, shared as wanted, and held as reserved? Pure."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Final

from mcp2026.api.conditions import Condition, merge_condition
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.reservations import divergences

HEALTHY: Final = "Healthy"
SHARING_APPLIED: Final = "SharingApplied"
RESERVED: Final = "Reserved"
LONGEST_MESSAGE: Final = 4096
"""Characters."""


class NodeReason(StrEnum):
    """Why a condition has its status."""

    ALL_HEALTHY = "AllHealthy"
    DRIVER_FAILING = "DriverFailing"
    GPU_UNHEALTHY = "GpuUnhealthy"
    GPU_UNREADABLE = "GpuUnreadable"
    GPU_DEGRADED = "GpuDegraded"
    AS_WANTED = "AsWanted"
    NOT_READ_YET = "NotReadYet"
    REFUSED = "Refused"
    """Configuration or spec says something that cannot be; what held before holds on."""
    FAILED = "Failed"
    DRAINING = "Draining"
    CHANGING = "Changing"
    AS_RESERVED = "AsReserved"
    DIVERGED = "Diverged"
    HOLDERS_UNKNOWN = "HoldersUnknown"


def node_conditions(
    snapshot: Snapshot, before: tuple[Condition, ...], now: datetime
) -> tuple[Condition, ...]:
    """Return the conditions of the node; `before` are those so far, `now` is in UTC."""
    conditions = before
    for kind, (status, reason, message), generation in (
        (HEALTHY, _healthy(snapshot), 0),
        (SHARING_APPLIED, _sharing_applied(snapshot), _judged_generation(snapshot)),
        (RESERVED, _reserved(snapshot), 0),
    ):
        new = Condition(
            kind,
            status,
            reason,
            message[:LONGEST_MESSAGE],
            last_transition_time=now.isoformat(timespec="seconds").replace("+00:00", "Z"),
            observed_generation=generation,
        )
        conditions = merge_condition(conditions, new)
    return conditions


_Verdict = tuple[str, NodeReason, str]


def _healthy(snapshot: Snapshot) -> _Verdict:
    if snapshot.driver_failure:
        return "False", NodeReason.DRIVER_FAILING, snapshot.driver_failure
    told = [
        f"GPU {gpu.index}: {condition.message}"
        for health in ("Unhealthy", "Degraded")
        for gpu in snapshot.machine.gpus
        if (condition := snapshot.conditions.get(gpu.uuid)) is not None and condition.health == health
    ]
    unreadable = [f"GPU {index}: {reason}" for index, reason in snapshot.unreadable.items()]
    if snapshot.unhealthy:
        return "False", NodeReason.GPU_UNHEALTHY, _sentences([*told, *unreadable])
    if unreadable:
        return "False", NodeReason.GPU_UNREADABLE, _sentences([*unreadable, *told])
    if told:
        return "False", NodeReason.GPU_DEGRADED, _sentences(told)
    return "True", NodeReason.ALL_HEALTHY, ""


def _sharing_applied(snapshot: Snapshot) -> _Verdict:
    if snapshot.refusals:
        refused = _sentences(refusal.message for refusal in snapshot.refusals)
        return "False", NodeReason.REFUSED, f"{refused}; what held before holds on"
    if not snapshot.wanted:
        return "Unknown", NodeReason.NOT_READ_YET, "how the GPUs shall be shared is not read yet"
    told: dict[str, list[str]] = {}
    for gpu in snapshot.machine.gpus:
        current, wanted = snapshot.sharing_of(gpu.uuid), snapshot.wanted_of(gpu.uuid)
        if current.state != "Active":
            told.setdefault(current.state, []).append(f"GPU {gpu.index}: {current.message}")
        elif current.sharing != wanted:
            told.setdefault("Changing", []).append(f"GPU {gpu.index}: {wanted.mode} is wanted")
    for state, reason in (
        ("Failed", NodeReason.FAILED),
        ("Draining", NodeReason.DRAINING),
        ("Changing", NodeReason.CHANGING),
    ):
        if state in told:
            return "False", reason, _sentences(told[state])
    return "True", NodeReason.AS_WANTED, ""


def _judged_generation(snapshot: Snapshot) -> int:
    return max([snapshot.spec_generation, *(refusal.generation for refusal in snapshot.refusals)])


def _reserved(snapshot: Snapshot) -> _Verdict:
    if not snapshot.holdings_known:
        return "Unknown", NodeReason.HOLDERS_UNKNOWN, "the kubelet does not tell who holds which device"
    found = divergences(snapshot.reservations, snapshot.held_by_container)
    if found:
        return "False", NodeReason.DIVERGED, _sentences(str(divergence) for divergence in found)
    return "True", NodeReason.AS_RESERVED, ""


def _sentences(parts: Iterable[str]) -> str:
    return "; ".join(parts)
