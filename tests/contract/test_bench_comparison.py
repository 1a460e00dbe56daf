"""A real comparison of the bare server and ours, by the client in Python, which needs no other program."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.results import FILE, Cell, ResultFile

pytestmark = pytest.mark.serial(reason="servers are compared, which each want the cores for themselves")

ROOT = Path(__file__).parents[2]


def compare(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", "compare", "--client", "python", "--output", str(folder)]
    environment = {**os.environ, "MCP2026_CACHE": str(folder / "cache")}
    return subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_comparison_measures_prints_and_goes_on(tmp_path: Path) -> None:
    arguments = (
        *("--models", "add", "--servers", "mcp2026,bare,raw", "--protocols", "json,grpc"),
        *("--concurrency", "4", "--seconds", "0.3"),
    )
    first = compare(tmp_path, *arguments, "--rounds", "1")
    assert first.returncode == 0, first.stderr
    assert "### add, json" in first.stdout
    assert "bare, add, grpc: not supported" in first.stdout

    results = ResultFile(tmp_path)
    measured = results.rounds()
    for server in ("mcp2026", "bare"):
        (result,) = measured[Cell("add", "json", 4, server)].values()
        assert result.answers > 0
        assert result.errors == 0
    lines = len((tmp_path / FILE).read_text().splitlines())

    again = compare(tmp_path, *arguments, "--rounds", "1")
    assert again.returncode == 0, again.stderr
    assert len((tmp_path / FILE).read_text().splitlines()) == lines + 1


def test_tenants_are_told_apart_by_a_running_server(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "bench",
        "tenants",
        "--model",
        "slow",
        "--seconds",
        "0.5",
        "--max-batch-size",
        "4",
    ]
    environment = {**os.environ, "MCP2026_CACHE": str(tmp_path)}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "weights 3:1" in run.stdout
    assert "gold alone" in run.stdout
