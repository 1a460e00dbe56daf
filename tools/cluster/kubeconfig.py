"""Writes the files by which clients find and trust an API server."""

import base64
from pathlib import Path
from typing import Any

import yaml

from tools.cluster.certificates import KeyPair


def kubeconfig(api_url: str, authority: bytes, certificate: bytes, key: bytes) -> dict[str, Any]:
    """Return a kubeconfig that carries its certificates inside, so that the file can be copied away."""

    def encoded(pem: bytes) -> str:
        return base64.b64encode(pem).decode()

    cluster = {"server": api_url, "certificate-authority-data": encoded(authority)}
    user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "mcp2026", "cluster": cluster}],
        "users": [{"name": "mcp2026", "user": user}],
        "contexts": [{"name": "mcp2026", "context": {"cluster": "mcp2026", "user": "mcp2026"}}],
        "current-context": "mcp2026",
    }


def write_kubeconfig(path: Path, api_url: str, authority: Path, client: KeyPair) -> Path:
    """Write a kubeconfig that only its owner may read."""
    content = kubeconfig(
        api_url, authority.read_bytes(), client.certificate.read_bytes(), client.key.read_bytes()
    )
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path
