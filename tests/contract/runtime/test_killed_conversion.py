"""A conversion that is killed leaves the file of before or a whole one, and nothing that stays for long."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp2026.runtime.model.ir.reading import check_weights
from tests.contract.runtime.kill_points import CONVERTER, Tokens
from tests.contract.runtime.server_process import PATIENCE


def _convert(source: Path, tokens: Tokens) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "mcp2026.cli", "convert", str(source), "--force", "--optimize"],
        env=os.environ | tokens.environment(),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode


@pytest.mark.parametrize("step", CONVERTER)
def test_a_killed_conversion_is_made_good_by_the_next_one(
    step: str, model: Callable[[str], Path], tmp_path: Path
) -> None:
    tokens = Tokens(tmp_path / "kill points")
    folder = tmp_path / "models"
    folder.mkdir()
    source = Path(shutil.copy(model("mlp"), folder / "m.onnx"))
    output = folder / "m.mcpir"
    output.write_bytes(b"before")
    tokens.arm(step)
    assert _convert(source, tokens) == -signal.SIGKILL
    if output.read_bytes() != b"before":
        check_weights(str(output))
    assert _convert(source, tokens) == 0
    check_weights(str(output))
    assert sorted(path.name for path in folder.iterdir()) == ["m.mcpir", "m.onnx"]
