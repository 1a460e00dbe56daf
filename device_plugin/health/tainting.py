"""Which taint must the node have, and how is it brought there without touching the others? Pure."""

from collections.abc import Mapping, Sequence

from mcp2026.api.names import DEVICE_UNHEALTHY_TAINT
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.health.settings import HealthSettings

Taint = Mapping[str, str]
"""As in a Node's `spec.taints`."""


def wanted_taint(snapshot: Snapshot, settings: HealthSettings) -> Taint | None:
    """Return the taint that the node must have now; its value is the reason of the first GPU that failed."""
    if settings.taint_effect == "None":
        return None
    gpus = [gpu.uuid for gpu in snapshot.machine.gpus]
    reasons = [
        condition.reason
        for uuid in gpus
        if (condition := snapshot.conditions.get(uuid)) is not None and condition.health == "Unhealthy"
    ]
    enough = len(gpus) if settings.taint_when == "All" else 1
    if not reasons or len(reasons) < enough:
        return None
    return {"key": DEVICE_UNHEALTHY_TAINT, "value": reasons[0], "effect": settings.taint_effect}


def taints_after(taints: Sequence[Taint] | None, wanted: Taint | None) -> list[Taint] | None:
    """Return the node's taints with `wanted` as the only one of its key; None if they are so already.

    The list is replaced as a whole, and guarded by the node's resourceVersion: to server-side apply it is
    atomic, so whoever applies it owns, and later removes, the taints of everyone else.
    """
    present = list(taints or ())
    others = [taint for taint in present if taint.get("key") != DEVICE_UNHEALTHY_TAINT]
    ours = [_without_time(taint) for taint in present if taint.get("key") == DEVICE_UNHEALTHY_TAINT]
    after = [] if wanted is None else [wanted]
    return None if ours == after else [*others, *after]


def _without_time(taint: Taint) -> Taint:
    """Return `taint` without the time that Kubernetes adds to those with effect NoExecute."""
    return {field: value for field, value in taint.items() if field != "timeAdded"}
