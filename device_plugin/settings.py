"""The plugin's settings: one frozen object, from flags and from the environment where a flag says so."""

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcp2026.api.errors import SettingsError
from mcp2026.api.gpu_devices import mig_resource
from mcp2026.api.names import GROUP
from mcp2026.api.settings import SettingsParser, add_log_flags
from mcp2026.api.structured_log import LogFormat, LogLevel
from mcp2026.device_plugin.resource_names import ResourceNames
from mcp2026.device_plugin.sharing.environment import MPS_DIRECTORY
from mcp2026.device_plugin.strategy import Strategy

LONGEST_MIG_PROFILE = "4g.141gb.me"
LONGEST_SOCKET_PATH = 107
"""Bytes, without the closing zero: `sun_path` of Linux."""

_SOCKET_PREFIX = re.compile(r"[A-Za-z0-9][-.A-Za-z0-9]{0,39}")
_SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. Durations are in seconds."""

    node_name: str
    kubelet_directory: Path = Path("/var/lib/kubelet")
    resource_prefix: str = GROUP
    socket_prefix: str = "mcp2026-"
    kubelet_timeout_s: float = 30.0
    health_interval_s: float = 5.0
    holders_interval_s: float = 5.0
    strategies: frozenset[Strategy] = frozenset({Strategy.ENVVAR})
    cdi_directory: Path = Path("/var/run/cdi")
    driver_libraries: Path | None = None
    configuration_file: Path | None = None
    mps_directory: Path = MPS_DIRECTORY
    publish_topology: bool = True
    fail_on_no_gpus: bool = True
    metrics_port: int | None = None
    log_format: LogFormat = "text"
    log_level: LogLevel = "INFO"

    def __post_init__(self) -> None:
        if not self.node_name:
            raise SettingsError("--node-name", "not given", "the node's name, here or in NODE_NAME")
        if not _SUBDOMAIN.fullmatch(self.node_name):
            raise SettingsError("--node-name", f"{self.node_name!r}", "a Node's name: a DNS subdomain")
        if not _SUBDOMAIN.fullmatch(self.resource_prefix) or "kubernetes.io" in self.resource_prefix:
            raise SettingsError(
                "--resource-prefix",
                f"{self.resource_prefix!r}",
                "a DNS subdomain, such as nvidia.com, without kubernetes.io",
            )
        if not _SOCKET_PREFIX.fullmatch(self.socket_prefix):
            raise SettingsError(
                "--socket-prefix", f"{self.socket_prefix!r}", "1 to 40 letters, digits, dots and dashes"
            )
        longest = self.plugin_directory / self.names.socket(mig_resource(LONGEST_MIG_PROFILE))
        if len(bytes(longest)) > LONGEST_SOCKET_PATH:
            raise SettingsError(
                "--kubelet-directory",
                f"a socket's path such as {longest} is too long",
                f"{LONGEST_SOCKET_PATH} bytes in all",
            )
        for name, value in (
            ("--kubelet-timeout", self.kubelet_timeout_s),
            ("--health-interval", self.health_interval_s),
            ("--holders-interval", self.holders_interval_s),
        ):
            if not 0.1 <= value <= 3600 or not math.isfinite(value):
                raise SettingsError(name, f"{value}", "0.1 to 3600 seconds")
        if not self.strategies:
            raise SettingsError("--device-list-strategy", "is empty", ", ".join(Strategy))
        if self.driver_libraries is not None and not self.driver_libraries.is_absolute():
            raise SettingsError(
                "--driver-libraries", f"{self.driver_libraries}", "an absolute path of the host"
            )
        if self.metrics_port is not None and not 0 <= self.metrics_port <= 65535:
            raise SettingsError("--metrics-port", f"{self.metrics_port}", "0 (any free port) to 65535")

    @property
    def names(self) -> ResourceNames:
        """What resources are called outside, and their sockets."""
        return ResourceNames(self.resource_prefix, self.socket_prefix)

    @property
    def plugin_directory(self) -> Path:
        """Where the kubelet and its plugins have their sockets."""
        return self.kubelet_directory / "device-plugins"

    @property
    def kubelet_socket(self) -> Path:
        """Where plugins register."""
        return self.plugin_directory / "kubelet.sock"

    @property
    def pod_resources_socket(self) -> Path:
        """Where the kubelet tells who holds which device."""
        return self.kubelet_directory / "pod-resources" / "kubelet.sock"


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings that flags give; NODE_NAME stands in for an absent --node-name.

    Raises:
        SettingsError: a value is missing or out of its range.
        SystemExit: the command line asks for help.

    """
    given = _parser(environment).parse_args(arguments)
    return Settings(
        node_name=given.node_name,
        kubelet_directory=given.kubelet_directory.absolute(),
        resource_prefix=given.resource_prefix,
        socket_prefix=given.socket_prefix,
        kubelet_timeout_s=given.kubelet_timeout,
        health_interval_s=given.health_interval,
        holders_interval_s=given.holders_interval,
        strategies=_strategies(given.device_list_strategy, given.pass_device_nodes),
        cdi_directory=given.cdi_directory.absolute(),
        driver_libraries=given.driver_libraries,
        configuration_file=given.config,
        mps_directory=given.mps_directory.absolute(),
        publish_topology=given.publish_topology,
        fail_on_no_gpus=given.fail_on_no_gpus,
        metrics_port=given.metrics_port,
        log_format=given.log_format,
        log_level=given.log_level,
    )


def _strategies(text: str, pass_device_nodes: bool) -> frozenset[Strategy]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in list(Strategy)]
    if unknown:
        raise SettingsError("--device-list-strategy", f"{', '.join(unknown)}", ", ".join(Strategy))
    nodes = [Strategy.DEVICE_NODES] if pass_device_nodes else []
    return frozenset([*map(Strategy, names), *nodes])


def _parser(environment: Mapping[str, str]) -> SettingsParser:
    default = Settings(node_name="node")
    parser = SettingsParser(
        prog="mcp2026-device-plugin",
        description="Offers this node's GPUs to the kubelet and publishes their topology to the cluster.",
    )
    flag = parser.add_argument
    flag(
        "--node-name",
        default=environment.get("NODE_NAME", ""),
        help="the node's name [$NODE_NAME]; required",
    )
    flag(
        "--kubelet-directory",
        type=Path,
        default=default.kubelet_directory,
        help="the kubelet's root [%(default)s]",
    )
    flag(
        "--resource-prefix",
        default=default.resource_prefix,
        help="resources are called PREFIX/gpu, PREFIX/gpu-shared and so on [%(default)s]",
    )
    flag(
        "--socket-prefix",
        default=default.socket_prefix,
        help="a resource PREFIX/gpu is served on this and gpu.sock in device-plugins/ [%(default)s]",
    )
    flag(
        "--kubelet-timeout",
        type=float,
        default=default.kubelet_timeout_s,
        metavar="SECONDS",
        help="how long the first registration may take before the plugin gives up [%(default)g]",
    )
    flag(
        "--health-interval",
        type=float,
        default=default.health_interval_s,
        metavar="SECONDS",
        help="how often the driver is asked whether each GPU answers [%(default)g]",
    )
    flag(
        "--holders-interval",
        type=float,
        default=default.holders_interval_s,
        metavar="SECONDS",
        help="how often the kubelet is asked who holds which GPU [%(default)g]",
    )
    flag(
        "--pass-device-nodes",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="add device-nodes to --device-list-strategy [off]",
    )
    flag(
        "--device-list-strategy",
        default=Strategy.ENVVAR,
        metavar="LIST",
        help="how containers are given devices, by commas: envvar (NVIDIA container runtime), cdi-cri (CDI), "
        "device-nodes [%(default)s]",
    )
    flag(
        "--cdi-directory",
        type=Path,
        default=default.cdi_directory,
        help="where the CDI specification is written, if cdi-cri is used [%(default)s]",
    )
    flag(
        "--driver-libraries",
        type=Path,
        default=None,
        metavar="DIRECTORY",
        help="folder of the host with the driver's libraries and nothing else; containers that get devices "
        "by CDI see it at /usr/local/nvidia/lib64 [none]",
    )
    flag(
        "--config",
        type=Path,
        default=None,
        metavar="FILE",
        help="YAML file that says how GPUs are shared; read again when it changes [all are exclusive]",
    )
    flag(
        "--mps-directory",
        type=Path,
        default=default.mps_directory,
        help="where MPS daemons have pipes, logs and records; the same path on the host [%(default)s]",
    )
    flag(
        "--publish-topology",
        action=argparse.BooleanOptionalAction,
        default=default.publish_topology,
        help="write the GPUTopology of this node; needs the API server [on]",
    )
    flag(
        "--fail-on-no-gpus",
        action=argparse.BooleanOptionalAction,
        default=default.fail_on_no_gpus,
        help="end with an error on a node without driver or GPU; otherwise idle, and look again [on]",
    )
    flag(
        "--metrics-port",
        type=int,
        default=None,
        help="serve /healthz, /readyz and /metrics here [not served]",
    )
    add_log_flags(parser)
    return parser
