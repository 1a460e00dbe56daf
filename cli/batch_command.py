"""`mcp2026 local` for a model of mode Batch: the Job's own command, run here to its end."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from mcp2026.api.inference_model import InferenceModel
from mcp2026.api.names import SERVING_CONFIG_KEY
from mcp2026.cli.accelerators import gpu_environment
from mcp2026.cli.errors import CommandError
from mcp2026.cli.pod_process import Mounts, config_document, local_config, mounts
from mcp2026.operator.children import job, serving_config, serving_config_map
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.settings import PodSettings

_REPLACED = {"--log-file": "batch.log", "--termination-message": "termination.json"}
_LEFT_OUT = ("--progress",)
"""Here it is a bar, if this is a terminal."""


def run_locally(model: InferenceModel, claims: Mapping[str, Path], settings: PodSettings) -> str:
    """Run the data set of `model`, and return what the run said of its end.

    A run that was interrupted goes on when the same command is given again.

    Raises:
        CommandError: it failed, or was interrupted.

    """
    with tempfile.TemporaryDirectory(prefix="mcp2026-local-") as name:
        folder = Path(name)
        manifest = job(model, settings)
        where = mounts(manifest, folder, claims)
        config = local_config(serving_config_map(model, serving_config(model, revision=1)), where)
        (folder / SERVING_CONFIG_KEY).write_bytes(config_document(config))
        gpu, _ = gpu_environment(model.spec.gpu.count)
        line = [sys.executable, "-m", "mcp2026.runtime.dataset"]
        line += arguments(manifest, where, folder, claims)
        if model.spec.batch is not None and model.spec.batch.timeout_seconds is not None:
            line += ["--timeout-seconds", str(model.spec.batch.timeout_seconds)]
        process = subprocess.Popen(line, env={**os.environ, **gpu})
        with _signals_for(process):
            code = process.wait()
        said = _last_word(folder / _REPLACED["--termination-message"])
        if code != 0:
            raise CommandError(f"{said.get('reason', 'ended')}: {said.get('message', f'exit code {code}')}")
        return str(said.get("message", "done"))


def arguments(manifest: Manifest, where: Mounts, folder: Path, claims: Mapping[str, Path]) -> list[str]:
    """Return the Job's arguments with the paths of this machine."""
    given: list[str] = manifest["spec"]["template"]["spec"]["containers"][0]["args"]
    found: list[str] = []
    for flag, value in zip(given[::2], given[1::2], strict=True):
        if flag in _LEFT_OUT:
            continue
        found += [flag, str(folder / _REPLACED[flag]) if flag in _REPLACED else where.local(value)]
    return [*found, *(text for claim, place in claims.items() for text in ("--claim", f"{claim}={place}"))]


def _last_word(path: Path) -> dict[str, Any]:
    try:
        said: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return said


@contextmanager
def _signals_for(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Pass signals on to the run, which ends in order; we end when it has."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
