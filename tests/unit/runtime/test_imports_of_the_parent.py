"""The parent of the workers computes nothing, so it loads nothing that computes: each start waits for it."""

import subprocess
import sys


def test_the_parent_loads_neither_arrays_nor_models() -> None:
    script = (
        "import sys, mcp2026.runtime.__main__; "
        "print(sorted({'numpy', 'onnxruntime', 'kubernetes', 'cryptography'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
