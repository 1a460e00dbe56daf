"""What a model's mode decides: which children it has, and how its status follows from them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from mcp2026.api.inference_model import InferenceModel, InferenceModelStatus
from mcp2026.operator import serving
from mcp2026.operator.batch import running as batch
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import Observed, at
from mcp2026.operator.settings import PodSettings
from mcp2026.operator.situation import Situation


@dataclass(frozen=True, slots=True)
class Mode:
    """One value of `spec.mode`."""

    child_kinds: tuple[str, ...]
    children: Callable[[InferenceModel, Observed, PodSettings], tuple[Manifest, ...]]
    """In the order of their creation; the one that makes pods is the last."""
    next_status: Callable[[Situation, datetime], InferenceModelStatus]
    look_again: Callable[[Situation, InferenceModelStatus, datetime], float | None]
    """After how many seconds something is due that no event will tell, if anything is."""


MODES = {
    "Serve": Mode(serving.CHILD_KINDS, serving.children, serving.next_status, serving.look_again),
    "Batch": Mode(batch.CHILD_KINDS, batch.children, batch.next_status, batch.look_again),
}
ALL_CHILD_KINDS = tuple(dict.fromkeys(kind for mode in MODES.values() for kind in mode.child_kinds))


def child_kinds(resource: Manifest) -> tuple[str, ...]:
    """Return the kinds of children that a resource's mode has; of a mode that is not known, none."""
    mode = MODES.get(str(at(resource, "spec", "mode") or "Serve"))
    return mode.child_kinds if mode else ()
