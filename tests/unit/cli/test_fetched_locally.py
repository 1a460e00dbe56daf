"""`mcp2026 local` fetches what lies elsewhere, once, and checks the inference on the file that it fetched."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.contract.runtime.test_batch_https import Site
from tools.models.catalogue import generate


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    site.files["/mlp.onnx"] = generate("mlp", tmp_path).read_bytes()
    yield site
    site.server.shutdown()
    site.server.server_close()


def local(folder: Path, site: Site, sha256: str) -> subprocess.CompletedProcess[str]:
    version = {"versionId": "v1", "uri": f"{site.url}/mlp.onnx", "sha256": sha256}
    resource = {
        "apiVersion": "mcp2026.io/v1alpha1",
        "kind": "InferenceModel",
        "metadata": {"name": "mlp"},
        "spec": {"versions": [version], "replicas": 2},
    }
    file = folder / "mlp.yaml"
    file.write_text(yaml.safe_dump(resource))
    own = {"SSL_CERT_FILE": str(site.authority), "XDG_CACHE_HOME": str(folder / "cache")}
    line = [sys.executable, "-m", "mcp2026.cli", "local", "-f", str(file), "--port", "0", "--check"]
    return subprocess.run(
        line, env={**os.environ, **own}, capture_output=True, text=True, timeout=120, check=False
    )


def test_two_replicas_share_one_fetch(tmp_path: Path, site: Site) -> None:
    digest = hashlib.sha256(site.files["/mlp.onnx"]).hexdigest()
    ended = local(tmp_path, site, digest)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "max difference from ONNX Runtime alone" in ended.stdout
    assert len(site.ranges) == 1
    assert (tmp_path / "cache" / "mcp2026" / "models" / digest).exists()


def test_another_file_than_was_asked_for_is_named(tmp_path: Path, site: Site) -> None:
    ended = local(tmp_path, site, "0" * 64)
    assert ended.returncode == 1
    assert "its sha256 is" in ended.stdout + ended.stderr
