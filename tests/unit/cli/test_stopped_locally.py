"""`mcp2026 local` with a model that is stopped by an edit of its file: servers drain, logs are archived."""

import gzip
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from tools.models.catalogue import generate

SECONDS = 60


def write(path: Path, **spec: object) -> None:
    resource = {
        "apiVersion": "mcp2026.io/v1alpha1",
        "kind": "InferenceModel",
        "metadata": {"name": "mlp"},
        "spec": {
            "versions": [{"versionId": "v1", "uri": "pvc://models/mlp.onnx"}],
            "replicas": 2,
            "logArchive": {"folder": "pvc://logs/mlp"},
            **spec,
        },
    }
    unfinished = path.with_suffix(".new")
    unfinished.write_text(yaml.safe_dump(resource))
    unfinished.rename(path)


def test_a_model_that_is_stopped_completes_with_the_digests_of_its_logs(tmp_path: Path) -> None:
    generate("mlp", tmp_path / "models")
    (tmp_path / "logs").mkdir()
    file = tmp_path / "mlp.yaml"
    write(file)
    volumes = [f"--volume={claim}={tmp_path / claim}" for claim in ("models", "logs")]
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "mcp2026.cli", "local", "-f", str(file), "--port", "0", *volumes],
        env={**os.environ},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "are served; Ctrl-C stops" in line:
                break
        write(file, stopped=True)
        said, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said
    assert "2 of 2 servers ended with exit code 0" in said
    assert re.search(r"mlp\s+Completed", said)
    for name in ("mlp-0", "mlp-1"):
        archive = (tmp_path / "logs" / "mlp" / f"{name}.log.gz").read_bytes()
        assert f"{name}.log.gz sha256 {hashlib.sha256(archive).hexdigest()}" in said
        assert "says that the model is stopped" in gzip.decompress(archive).decode()


def test_a_model_that_is_stopped_already_is_not_served(tmp_path: Path) -> None:
    file = tmp_path / "mlp.yaml"
    write(file, stopped=True)
    ended = subprocess.run(
        [sys.executable, "-m", "mcp2026.cli", "local", "-f", str(file), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode != 0
    assert "spec.stopped is true" in ended.stdout + ended.stderr
