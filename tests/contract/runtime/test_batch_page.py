"""The guide to batch mode: its example runs, its tables name what there is."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mcp2026.runtime.dataset.errors import Reason
from mcp2026.runtime.dataset.progress import Counts
from mcp2026.runtime.dataset.settings import read_settings
from tests.contract.runtime.batch_process import CLEAN, PATIENCE

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/batch-mode.md").read_text(encoding="utf-8")


def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    example = re.search(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, module in (("python", ""), ("mcp2026-batch", "-m mcp2026.runtime.dataset ")):
        script = programs / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    environment = CLEAN | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        ["sh", "-euc", example[1]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert len(json.loads(run.stdout.splitlines()[-1])["output"]) == 10
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 1000
    assert json.loads((tmp_path / "progress.json").read_text())["phase"] == "done"


def test_the_table_of_ends_has_every_reason() -> None:
    section = PAGE.partition("## How it ends\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| [^|]+ \| `(\w+)` \|", section, re.MULTILINE)) == {str(one) for one in Reason}


def test_the_example_of_a_progress_file_has_its_fields() -> None:
    example = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    assert tuple(json.loads(example[1])) == Counts().snapshot(0.0).__struct_fields__


def test_every_flag_on_the_page_exists(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(("--help",), {})
    flags = set(re.findall(r"--[a-z][-a-z0-9]*", capsys.readouterr().out))
    assert set(re.findall(r"`(--[a-z][-a-z0-9]*)", PAGE)) <= flags
