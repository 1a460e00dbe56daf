"""What an operator process is told, once, at its start."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from mcp2026.api.errors import SettingsError
from mcp2026.api.names import LIVENESS_PORT, SCHEDULER_NAME
from mcp2026.api.settings import SettingsParser, add_log_flags
from mcp2026.api.structured_log import LogFormat, LogLevel

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
    log_format: LogFormat = "text"
    """The pods log as the operator does."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one operator, validated on construction; durations in seconds."""

    pods: PodSettings
    namespaces: tuple[str, ...] = ()
    """Watched namespaces; none: the whole cluster."""
    liveness_port: int = LIVENESS_PORT
    """GET /healthz; 0: none."""
    resync_seconds: float = 300.0
    """Everything is listed and reconciled again after this time, whether events came or not."""
    workers: int = 4
    """Models reconciled at the same time."""
    log_format: LogFormat = "text"
    log_level: LogLevel = "INFO"

    def __post_init__(self) -> None:
        if not self.pods.runtime_image:
            raise SettingsError("--runtime-image", "not given", f"an image, here or in ${_IMAGE_VARIABLE}")
        if not 0 <= self.liveness_port <= 65_535:
            raise SettingsError("--liveness-port", f"{self.liveness_port} is no port", "0 (none) to 65535")
        if not 1 <= self.resync_seconds <= 86_400:
            raise SettingsError(
                "--resync-seconds", f"{self.resync_seconds:g} is out of range", "1 to 86400 seconds"
            )
        if not 1 <= self.workers <= 64:
            raise SettingsError("--workers", f"{self.workers} is out of range", "1 to 64")


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings that flags give; an environment variable stands in for an absent flag.

    Raises:
        SettingsError: a value is missing or not allowed.
        SystemExit: the command line asks for help.

    """
    given = _parser(environment).parse_args(arguments)
    return Settings(
        pods=PodSettings(
            runtime_image=given.runtime_image,
            image_pull_policy=given.runtime_image_pull_policy,
            scheduler_name=given.scheduler_name,
            log_format=given.log_format,
        ),
        namespaces=tuple(given.namespace),
        liveness_port=given.liveness_port,
        resync_seconds=given.resync_seconds,
        workers=given.workers,
        log_format=given.log_format,
        log_level=given.log_level,
    )


def _parser(environment: Mapping[str, str]) -> SettingsParser:
    pods, whole = PodSettings("-"), Settings(PodSettings("-"))
    parser = SettingsParser("mcp2026-operator", description="Turns InferenceModels into serving pods.")
    flag = parser.add_argument
    flag("--namespace", action="append", default=[], help="watch this namespace only; repeatable [all]")
    flag(
        "--runtime-image",
        default=environment.get(_IMAGE_VARIABLE, ""),
        help=f"image of the model pods [${_IMAGE_VARIABLE}]; required",
    )
    flag(
        "--runtime-image-pull-policy",
        choices=get_args(ImagePullPolicy),
        default=pods.image_pull_policy,
        help="when the node pulls that image [%(default)s]",
    )
    flag("--scheduler-name", default=pods.scheduler_name, help="places pods with GPUs [%(default)s]")
    flag(
        "--liveness-port",
        type=int,
        default=whole.liveness_port,
        help="serve /healthz here; 0: nowhere [%(default)s]",
    )
    flag(
        "--resync-seconds",
        type=float,
        default=whole.resync_seconds,
        help="seconds between full lists [%(default)g]",
    )
    flag("--workers", type=int, default=whole.workers, help="models reconciled at once [%(default)s]")
    add_log_flags(parser)
    return parser
