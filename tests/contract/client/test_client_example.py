"""The example and the snippets of the guide do what they say."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples/client.py"


def test_the_example_answers_over_every_transport() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # it makes sockets there: at most 107 bytes
        ended = subprocess.run(
            [sys.executable, str(EXAMPLE), "--serve"],
            env={**os.environ, "TMPDIR": short},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert list(Path(short).glob("mcp2026-*")) == []
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "102 of 102 answers are equal" in ended.stdout
    assert "refused: field inputs.input.datatype, allowed FP32" in ended.stdout
    assert "batching: NegotiatedBatching(max_delay_ms=50, min_size=3)" in ended.stdout
