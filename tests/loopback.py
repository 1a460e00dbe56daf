"""What a test asks of this machine's loopback interface: a free port, an answer, a way to an API server."""

import socket
import urllib.error
import urllib.request
from pathlib import Path

import yaml

LOOPBACK = "127.0.0.1"
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def http_get(port: int, path: str, host: str = LOOPBACK) -> tuple[int, str]:
    """Return status and body of a GET; status 0 while nobody answers."""
    try:
        with _NO_PROXY.open(f"http://{host}:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def kubeconfig_for(port: int, folder: Path) -> Path:
    """Write a kubeconfig that leads to an API server on `port`, plain HTTP, and return its path."""
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": f"http://{LOOPBACK}:{port}"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "users": [{"name": "it", "user": {"token": "t"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path
