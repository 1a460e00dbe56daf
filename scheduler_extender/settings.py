"""The extender's settings: one frozen object, from flags and from the environment where a flag says so."""

import argparse
import ipaddress
import re
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

from mcp2026.api.errors import SettingsError
from mcp2026.api.names import EXTENDER_PORT
from mcp2026.api.settings import SettingsParser, add_log_flags
from mcp2026.api.structured_log import LogFormat, LogLevel
from mcp2026.scheduler_extender.election import LeaseTiming

LOOPBACK = "127.0.0.1"
EVERY_ADDRESS = "0.0.0.0"
TLS_FLAGS = {
    "--tls-cert-file": "certificate chain of the verbs",
    "--tls-private-key-file": "its key",
    "--client-ca-file": "CA of the certificates of those who may call the verbs",
}


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the server's certificate chain and key, and the CA of clients that may call the verbs."""

    certificate: Path
    private_key: Path
    client_ca: Path


ELECT = "--leader-elect"
LEASE_NAME = "mcp2026-scheduler-extender"
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Where a pod reads its own namespace."""
JITTER = 1.2
"""As in client-go: the renew deadline must leave room for a retry."""
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """How this process campaigns for a Lease. Leases are named as `namespace/name`."""

    identity: str
    """No other process may have the same at the same time."""
    lease: str = f"default/{LEASE_NAME}"
    beside: str = ""
    """The Lease of the kube-schedulers, if we campaign only while the one beside us leads; empty: always."""
    timing: LeaseTiming = field(default_factory=LeaseTiming)

    def __post_init__(self) -> None:
        if not self.identity:
            raise SettingsError(f"{ELECT}-identity", "is empty", "a name, such as that of the pod")
        for flag, lease in ((f"{ELECT}-lease", self.lease), (f"{ELECT}-beside-scheduler", self.beside)):
            parts = lease.split("/")
            if lease and not (len(parts) == 2 and all(map(_OBJECT_NAME.fullmatch, parts))):
                raise SettingsError(flag, f"{lease!r} names no Lease", "NAMESPACE/NAME, in lower case")
        if self.lease == self.beside:
            raise SettingsError(f"{ELECT}-lease", f"{self.lease} is the schedulers'", "another one")
        timing = self.timing
        if not timing.retry_s >= 0.1:
            flag, allowed = f"{ELECT}-retry-period", "0.1 or more"
            raise SettingsError(flag, f"{timing.retry_s:g} s is too short", allowed)
        if not timing.renew_s > JITTER * timing.retry_s:
            allowed = f"more than {JITTER} times {ELECT}-retry-period"
            raise SettingsError(f"{ELECT}-renew-deadline", f"{timing.renew_s:g} s is too short", allowed)
        if not max(1, timing.renew_s + 1) <= timing.lease_s <= 3600 or timing.lease_s % 1:
            allowed = f"whole seconds, at least 1 more than {ELECT}-renew-deadline, up to 3600"
            raise SettingsError(f"{ELECT}-lease-duration", f"{timing.lease_s:g} s", allowed)


@dataclass(frozen=True, slots=True)
class Settings:
    """Validated on construction; port 0 lets the system choose one, which the log then names."""

    host: str = LOOPBACK
    port: int = EXTENDER_PORT
    metrics_host: str = EVERY_ADDRESS
    metrics_port: int | None = None
    """Where health and metrics, and no verbs, are served to others; None: nowhere."""
    kubeconfig: Path | None = None
    """None: the pod's service account, or outside a pod the default kubeconfig."""
    configuration_file: Path | None = None
    """None: the policy is that by default."""
    tls: TlsFiles | None = None
    """None: the verbs are plain HTTP, on loopback alone."""
    election: ElectionSettings | None = None
    """None: there is one extender, which answers always."""
    log_format: LogFormat = "text"
    log_level: LogLevel = "INFO"

    def __post_init__(self) -> None:
        if self.tls is None and not _is_loopback(self.host):
            raise SettingsError(
                "--host",
                f"{self.host} is reachable by others, and the verbs are plain HTTP without authentication",
                "a loopback address such as 127.0.0.1 (the scheduler runs in the same pod), or any with "
                "--tls-cert-file, --tls-private-key-file and --client-ca-file",
            )
        for flag, port in (("--port", self.port), ("--metrics-port", self.metrics_port)):
            if port is not None and not 0 <= port <= 65_535:
                raise SettingsError(flag, f"{port} is no port", "0 to 65535")
        if self.metrics_port and self.metrics_port == self.port:
            raise SettingsError("--metrics-port", f"{self.port} is --port", "another port")
        if self.kubeconfig is not None and not self.kubeconfig.is_file():
            raise SettingsError("--kubeconfig", f"{self.kubeconfig} is no file", "a kubeconfig file")


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings that the command line and `KUBECONFIG` give.

    Raises:
        SettingsError: a value is not allowed.
        SystemExit: the command line asks for help.

    """
    parser = SettingsParser(
        prog="mcp2026-scheduler-extender",
        description="Tells kube-scheduler which nodes have the GPUs that a pod asks for, and which is best.",
    )
    parser.add_argument("--host", default=LOOPBACK, help="loopback address of the verbs [%(default)s]")
    parser.add_argument("--port", type=int, default=EXTENDER_PORT, help="port of the verbs [%(default)s]")
    parser.add_argument(
        "--metrics-host", default=EVERY_ADDRESS, help="address of --metrics-port [%(default)s]"
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        help="serve /healthz, /readyz and /metrics here too, for the kubelet and Prometheus [not served]",
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        help="kubeconfig file [$KUBECONFIG, else the service account in a pod, else ~/.kube/config]",
    )
    parser.add_argument(
        "--config", type=Path, help="YAML file of the policy, read again when it changes [the default policy]"
    )
    for flag, what in TLS_FLAGS.items():
        parser.add_argument(flag, type=Path, help=f"{what}, PEM; all three or none [plain HTTP on loopback]")
    _add_election_flags(parser)
    add_log_flags(parser)
    given = parser.parse_args(arguments)
    kubeconfig = cast("Path | None", given.kubeconfig)
    if kubeconfig is None and environment.get("KUBECONFIG"):
        kubeconfig = Path(environment["KUBECONFIG"])
    return Settings(
        host=given.host,
        port=given.port,
        metrics_host=given.metrics_host,
        metrics_port=given.metrics_port,
        kubeconfig=kubeconfig,
        configuration_file=given.config,
        tls=_tls(given.tls_cert_file, given.tls_private_key_file, given.client_ca_file),
        election=_election(given),
        log_format=given.log_format,
        log_level=given.log_level,
    )


def _tls(*files: Path | None) -> TlsFiles | None:
    """Return the files of `TLS_FLAGS`, in their order.

    Raises:
        SettingsError: some are given and not all, or one is no file.

    """
    given = dict(zip(TLS_FLAGS, files, strict=True))
    if not any(given.values()):
        return None
    found = []
    for flag, path in given.items():
        if path is None:
            raise SettingsError(flag, "is missing", f"all of {', '.join(TLS_FLAGS)}, or none")
        if not path.is_file():
            raise SettingsError(flag, f"{path} is no file", "a PEM file")
        found.append(path)
    certificate, private_key, client_ca = found
    return TlsFiles(certificate, private_key, client_ca)


def _add_election_flags(parser: SettingsParser) -> None:
    timing = LeaseTiming()
    group = parser.add_argument_group("several extenders, of which one answers")
    group.add_argument(
        ELECT, action="store_true", help="answer only while this process holds a Lease [answer always]"
    )
    group.add_argument(
        f"{ELECT}-beside-scheduler",
        metavar="NAMESPACE/NAME",
        help="campaign only while the kube-scheduler on this host holds this Lease [campaign always]",
    )
    group.add_argument(
        f"{ELECT}-lease",
        metavar="NAMESPACE/NAME",
        help=f"the Lease [{LEASE_NAME} in the pod's namespace, outside a pod in default]",
    )
    group.add_argument(
        f"{ELECT}-identity", help="this process's name in the Lease, never used by two [HOST_RANDOM]"
    )
    for flag, seconds, what in (
        (f"{ELECT}-lease-duration", timing.lease_s, "seconds for which a Lease that nobody renews is valid"),
        (f"{ELECT}-renew-deadline", timing.renew_s, "seconds for which a leader answers after a renewal"),
        (f"{ELECT}-retry-period", timing.retry_s, "seconds between two renewals, or two looks"),
    ):
        group.add_argument(flag, type=float, metavar="SECONDS", help=f"{what} [{seconds:g}]")


def _election(given: argparse.Namespace) -> ElectionSettings | None:
    """Return the settings of the election, if there is to be one.

    Raises:
        SettingsError: one is given that has no meaning without the election, or is not allowed.

    """
    values = {name: value for name, value in vars(given).items() if name.startswith("leader_elect_")}
    if not given.leader_elect:
        for name, value in values.items():
            if value is not None:
                flag = "--" + name.replace("_", "-")
                raise SettingsError(flag, f"is given without {ELECT}", "both, or none")
        return None
    default = LeaseTiming()
    timing = LeaseTiming(
        _or(given.leader_elect_lease_duration, default.lease_s),
        _or(given.leader_elect_renew_deadline, default.renew_s),
        _or(given.leader_elect_retry_period, default.retry_s),
    )
    namespace = NAMESPACE_FILE.read_text().strip() if NAMESPACE_FILE.is_file() else "default"
    return ElectionSettings(
        identity=_or(given.leader_elect_identity, f"{socket.gethostname()}_{uuid.uuid4()}"),
        lease=_or(given.leader_elect_lease, f"{namespace}/{LEASE_NAME}"),
        beside=_or(given.leader_elect_beside_scheduler, ""),
        timing=timing,
    )


_Value = TypeVar("_Value")


def _or(given: _Value | None, default: _Value) -> _Value:
    return default if given is None else given


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
