"""Where is the API server, and how is it spoken to? From a service account, or a kubeconfig file."""

import base64
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from mcp2026.api.yaml_errors import NOT_YAML
from mcp2026.device_plugin.errors import NoCredentialsError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_KUBECONFIG = Path("~/.kube/config")


class Credentials:
    """The API server's URL, the TLS settings for it, and a token, if that is how it is told who we are."""

    def __init__(
        self, server: str, tls: ssl.SSLContext | bool, token: str = "", token_file: Path | None = None
    ) -> None:
        self.server = server.rstrip("/")
        self.tls = tls
        self._token = token
        self._token_file = token_file

    def headers(self) -> dict[str, str]:
        """Return the header that says who we are; a token's file is read anew, as the kubelet renews it."""
        token = self._token
        if self._token_file is not None:
            token = self._token_file.read_text(encoding="utf-8").strip()
        return {"Authorization": f"Bearer {token}"} if token else {}


def find_credentials(environment: Mapping[str, str]) -> Credentials:
    """Return the credentials of the pod's service account, outside a pod those of a kubeconfig file.

    Raises:
        NoCredentialsError: there is neither, or one that cannot be used.

    """
    host, port = (environment.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if host and port and (SERVICE_ACCOUNT / "token").exists():
        return _service_account(host, port)
    path = Path(environment.get("KUBECONFIG") or DEFAULT_KUBECONFIG).expanduser()
    try:
        return _from_kubeconfig(path)
    except (OSError, *NOT_YAML, msgspec.ValidationError, ssl.SSLError) as error:
        raise NoCredentialsError(path, str(error)) from error


def _service_account(host: str, port: str) -> Credentials:
    address = f"[{host}]" if ":" in host else host
    try:
        tls = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))
    except (OSError, ssl.SSLError) as error:
        raise NoCredentialsError(SERVICE_ACCOUNT / "ca.crt", str(error)) from error
    return Credentials(f"https://{address}:{port}", tls, token_file=SERVICE_ACCOUNT / "token")


class _ClusterEntry(msgspec.Struct, rename="kebab"):
    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False


class _UserEntry(msgspec.Struct, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    exec: Any = None
    auth_provider: Any = None


class _ContextEntry(msgspec.Struct):
    cluster: str
    user: str


class _Named(msgspec.Struct):
    name: str
    cluster: _ClusterEntry | None = None
    user: _UserEntry | None = None
    context: _ContextEntry | None = None


class _Kubeconfig(msgspec.Struct, rename="kebab"):
    current_context: str
    clusters: list[_Named]
    users: list[_Named]
    contexts: list[_Named]


def _from_kubeconfig(path: Path) -> Credentials:
    document = msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), _Kubeconfig)
    context = _entry(document.contexts, document.current_context, "context").context
    if context is None:
        raise ValueError(f"the context {document.current_context!r} is empty")
    cluster = _entry(document.clusters, context.cluster, "cluster").cluster
    user = _entry(document.users, context.user, "user").user or _UserEntry()
    if cluster is None:
        raise ValueError(f"the cluster {context.cluster!r} is empty")
    if user.exec is not None or user.auth_provider is not None:
        raise ValueError(
            f"the user {context.user!r} has its credentials made by a program, which the device plugin does "
            "not run: use a certificate or a token"
        )
    token_file = path.parent / user.token_file if user.token_file else None
    return Credentials(cluster.server, _tls(path, cluster, user), user.token, token_file)


def _entry(entries: list[_Named], name: str, kind: str) -> _Named:
    found = next((entry for entry in entries if entry.name == name), None)
    if found is None:
        raise ValueError(f"there is no {kind} {name!r}")
    return found


def _tls(path: Path, cluster: _ClusterEntry, user: _UserEntry) -> ssl.SSLContext | bool:
    if not cluster.server.startswith("https://"):
        return False
    authority = base64.b64decode(cluster.certificate_authority_data).decode()
    file = str(path.parent / cluster.certificate_authority) if cluster.certificate_authority else None
    tls = ssl.create_default_context(cafile=None if authority else file, cadata=authority or None)
    if cluster.insecure_skip_tls_verify:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    if user.client_certificate_data or user.client_certificate:
        with tempfile.TemporaryDirectory() as folder:  # the ssl module reads certificates from files alone
            certificate = _as_file(
                path, user.client_certificate, user.client_certificate_data, folder, "cert"
            )
            key = _as_file(path, user.client_key, user.client_key_data, folder, "key")
            tls.load_cert_chain(certificate, key)
    return tls


def _as_file(path: Path, file: str, data: str, folder: str, name: str) -> Path:
    if not data:
        return path.parent / file
    made = Path(folder) / name
    made.touch(mode=0o600)
    made.write_bytes(base64.b64decode(data))
    return made
