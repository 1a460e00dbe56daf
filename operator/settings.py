"""What an operator process is told, once, at its start."""

from dataclasses import dataclass
from typing import Literal

from mcp2026.api.names import SCHEDULER_NAME
from mcp2026.api.structured_log import LogFormat

ImagePullPolicy = Literal["Always", "IfNotPresent", "Never"]


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What all model pods have in common."""

    runtime_image: str
    image_pull_policy: ImagePullPolicy = "IfNotPresent"
    scheduler_name: str = SCHEDULER_NAME
    """Places the pods that ask for GPUs; the others go to the cluster's default scheduler."""
    lame_duck_seconds: int = 5
    """How long a pod that ends serves on while its endpoints are withdrawn."""
    termination_grace_seconds: int = 60
    """From the signal to the kill: the lame-duck time and the drain."""


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """The whole configuration of the operator."""

    pods: PodSettings
    namespaces: tuple[str, ...] = ()
    """Watched namespaces; none: the whole cluster."""
    liveness_port: int = 8080
    """GET /healthz; 0: none."""
    resync_seconds: float = 300.0
    """Everything is listed and reconciled again after this time, whether events came or not."""
    workers: int = 4
    """Models reconciled at the same time."""
    log_format: LogFormat = "json"
