"""What an operator process is told, once, at its start."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mcp2026.api.names import SCHEDULER_NAME
from mcp2026.api.structured_log import LogFormat
from mcp2026.operator.errors import SettingsError

_IMAGE_VARIABLE = "MCP2026_RUNTIME_IMAGE"

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
class Settings:
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


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings that flags give; an environment variable stands in for an absent flag.

    Raises:
        SettingsError: a value is missing or not allowed.

    """
    pods, whole = PodSettings(runtime_image=""), Settings(PodSettings(runtime_image=""))
    parser = argparse.ArgumentParser(
        "mcp2026-operator", description="Turns InferenceModels into serving pods."
    )
    parser.add_argument(
        "--namespace", action="append", default=[], help="watch this namespace only; repeatable"
    )
    parser.add_argument(
        "--runtime-image",
        default=environment.get(_IMAGE_VARIABLE),
        help=f"image of the model pods (or ${_IMAGE_VARIABLE}); required",
    )
    parser.add_argument(
        "--runtime-image-pull-policy",
        choices=["Always", "IfNotPresent", "Never"],
        default=pods.image_pull_policy,
        help="default: %(default)s",
    )
    parser.add_argument(
        "--scheduler-name", default=pods.scheduler_name, help="places pods with GPUs; default: %(default)s"
    )
    parser.add_argument(
        "--liveness-port",
        type=int,
        default=whole.liveness_port,
        help="GET /healthz; 0: none; default: %(default)s",
    )
    parser.add_argument(
        "--resync-seconds",
        type=float,
        default=whole.resync_seconds,
        help="time between full lists; default: %(default)s",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=whole.workers,
        help="models reconciled at the same time; default: %(default)s",
    )
    parser.add_argument("--log-format", choices=["text", "json"], default=whole.log_format)
    flags = parser.parse_args(arguments)
    if not flags.runtime_image:
        raise SettingsError(f"--runtime-image or ${_IMAGE_VARIABLE} is required: the image of the model pods")
    if flags.resync_seconds < 1:
        raise SettingsError(f"--resync-seconds: {flags.resync_seconds} is too short; allowed: 1 or more")
    if not 1 <= flags.workers <= 64:
        raise SettingsError(f"--workers: {flags.workers} is out of range; allowed: 1 to 64")
    return Settings(
        pods=PodSettings(
            runtime_image=flags.runtime_image,
            image_pull_policy=flags.runtime_image_pull_policy,
            scheduler_name=flags.scheduler_name,
        ),
        namespaces=tuple(flags.namespace),
        liveness_port=flags.liveness_port,
        resync_seconds=flags.resync_seconds,
        workers=flags.workers,
        log_format=flags.log_format,
    )
