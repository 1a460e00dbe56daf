"""What `reconcile` asks for. An executor carries it out: against an API server, or with local processes."""

from dataclasses import dataclass
from typing import Literal

from mcp2026.api.inference_model import InferenceModelStatus
from mcp2026.operator.manifests import Manifest


@dataclass(frozen=True, slots=True)
class ApplyChild:
    """Make the cluster hold this manifest: create it or take its fields back."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class AnnotatePod:
    """Set an annotation of a pod that is there, or take it away (`value` None). It restarts nothing."""

    pod: Manifest
    annotation: str
    value: str | None


@dataclass(frozen=True, slots=True)
class UpdateStatus:
    """Write the model's status, provided that the model is still the one that was observed."""

    status: InferenceModelStatus


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Tell the user, as a Kubernetes Event of the model."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Look again after this time, in seconds, though nothing may have been heard."""

    seconds: float


Action = ApplyChild | AnnotatePod | UpdateStatus | EmitEvent | RequeueAfter
