"""The extender's settings: one frozen object, from flags and from the environment where a flag says so."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from mcp2026.api.errors import SettingsError
from mcp2026.api.names import EXTENDER_PORT
from mcp2026.api.settings import SettingsParser, add_log_flags
from mcp2026.api.structured_log import LogFormat, LogLevel

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


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
