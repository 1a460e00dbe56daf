"""Keys and certificates of a run, made with the openssl program."""

import ipaddress
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.cluster.errors import ClusterError

VALID_DAYS = 30
"""Days that certificates are valid: a run does not live longer than a day or two."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path


def subject(common_name: str, organizations: Sequence[str] = ()) -> str:
    """Return a subject as openssl reads it; Kubernetes reads groups from the organizations."""
    return "".join(f"/O={organization}" for organization in organizations) + f"/CN={common_name}"


def alternative_names(hosts: Sequence[str]) -> str:
    """Return the extension that names the hosts and addresses a serving certificate is for."""
    names = []
    for host in hosts:
        try:
            names.append(f"IP:{ipaddress.ip_address(host)}")
        except ValueError:
            names.append(f"DNS:{host}")
    return "subjectAltName=" + ",".join(names)


class Authority:
    """A certificate authority that lives in one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.pair = KeyPair(folder / f"{name}.crt", folder / f"{name}.key")
        if not self.pair.certificate.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _request(
                self.pair,
                subject(f"mcp2026-{name}"),
                [
                    "basicConstraints=critical,CA:TRUE",
                    "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
                ],
            )

    @property
    def certificate(self) -> Path:
        """Return the certificate that others trust."""
        return self.pair.certificate

    def issue(
        self,
        file_name: str,
        common_name: str,
        *,
        organizations: Sequence[str] = (),
        hosts: Sequence[str] = (),
    ) -> KeyPair:
        """Issue a certificate: for a client, and also for serving if hosts are given."""
        pair = KeyPair(self.folder / f"{file_name}.crt", self.folder / f"{file_name}.key")
        usage = "extendedKeyUsage=clientAuth" + (",serverAuth" if hosts else "")
        extensions = ["basicConstraints=critical,CA:FALSE", usage]
        if hosts:
            extensions.append(alternative_names(hosts))
        signer = ["-CA", str(self.pair.certificate), "-CAkey", str(self.pair.key)]
        _request(pair, subject(common_name, organizations), extensions, signer)
        return pair


def signing_key(path: Path) -> Path:
    """Make a private key that service-account tokens are signed with (SEC 1: PKCS #8 is refused)."""
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path))
    path.chmod(0o600)
    return path


def _request(pair: KeyPair, name: str, extensions: Sequence[str], signer: Sequence[str] = ()) -> None:
    added = [word for extension in extensions for word in ("-addext", extension)]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]
    files = ["-keyout", str(pair.key), "-out", str(pair.certificate)]
    _openssl(
        "req", "-x509", "-config", "/dev/null", "-days", str(VALID_DAYS), "-subj", name,
        *curve, *files, *added, *signer,
    )  # fmt: skip
    pair.key.chmod(0o600)


def _openssl(*arguments: str) -> None:
    answer = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise ClusterError(f"openssl {arguments[0]} failed: {answer.stderr.strip()}")
