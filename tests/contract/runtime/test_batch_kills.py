"""A run that is killed, at whatever moment, and the one after it make what one run would have made."""

import errno
import json
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.contract.runtime.batch_process import (
    Child,
    FailFsync,
    KillAt,
    parts_beside,
    rows_of_parts,
    run_batch,
)

Model = Callable[[str], Path]
ROWS = 50


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "in.npy"
    np.save(path, np.random.default_rng(1).standard_normal((ROWS, 64)).astype(np.float32))
    return path


def arguments(model: Model, rows: Path, output: Path) -> tuple[str, ...]:
    return (
        *("--model-path", str(model("mlp")), "--input", str(rows), "--output", str(output)),
        *("--rows-per-part", "30"),
    )


@pytest.mark.parametrize(
    ("suffix", "torn"),
    [
        pytest.param("jsonl", False, id="jsonl"),
        pytest.param("npy", True, id="npy, and what was not synced is lost"),
    ],
)
def test_a_kill_at_any_step_leaves_what_the_next_run_finishes(
    model: Model, tmp_path: Path, rows: Path, suffix: str, torn: bool
) -> None:
    reference = tmp_path / f"reference.{suffix}"
    whole = run_batch(tmp_path, *arguments(model, rows, reference))
    assert (whole.code, whole.termination["reason"]) == (0, "Completed")
    step = 0
    while True:
        step += 1
        output = tmp_path / f"{step}" / f"out.{suffix}"
        killed = run_batch(tmp_path, *arguments(model, rows, output), fault=KillAt(step, torn))
        if killed.code == 0:
            break
        assert killed.code == -signal.SIGKILL, killed.log
        there = parts_beside(output)
        finished = output.with_name(output.name + ".result.json").exists()
        if output.exists():
            assert output.read_bytes() == reference.read_bytes()
        again = run_batch(tmp_path, *arguments(model, rows, output))
        assert again.code == 0, (step, again.log)
        assert output.read_bytes() == reference.read_bytes(), step
        assert again.termination["sha256"] == whole.termination["sha256"]
        assert again.termination["rows"] == ROWS
        # What was written is not done again, and nothing else is counted as done.
        assert again.termination["rows_resumed"] == (ROWS if finished else rows_of_parts(there)), step
        assert sorted(path.name for path in output.parent.iterdir()) == [
            output.name,
            f"{output.name}.result.json",
        ]
    assert step > 20  # the steps of three parts, three records, the output and the removal


def test_kills_at_random_moments_lose_no_row(model: Model, tmp_path: Path) -> None:
    source, output, reference = (tmp_path / name for name in ("in.npy", "out.jsonl", "reference.jsonl"))
    np.save(source, np.random.default_rng(2).standard_normal((2_000, 64)).astype(np.float32))
    asked = (
        "--model-path",
        str(model("mlp")),
        "--input",
        str(source),
        "--rows-per-part",
        "10",
        "--threads",
        "1",
    )
    assert run_batch(tmp_path, *asked, "--output", str(reference)).code == 0
    moments, done = random.Random(3), 0
    for _ in range(8):
        child = Child(tmp_path, *asked, "--output", str(output))
        # From its first new part on, it may be killed at any time.
        while child.process.is_alive() and len(parts_beside(output)) <= done:
            time.sleep(0.002)
        time.sleep(moments.random() * 0.05)
        child.process.kill()
        if child.end().code == 0:
            break
        names = parts_beside(output)
        assert len(names) >= done or output.exists()
        done = len(names)
    last = run_batch(tmp_path, *asked, "--output", str(output))
    assert last.code == 0, last.log
    assert output.read_bytes() == reference.read_bytes()


def test_sigterm_stops_in_time_and_the_same_command_goes_on(model: Model, tmp_path: Path) -> None:
    source, output, progress = (tmp_path / name for name in ("in.npy", "out.npy", "progress.json"))
    np.save(source, np.ones((400, 16), np.float32))
    asked = (
        *("--model-path", str(model("slow")), "--input", str(source), "--output", str(output)),
        *("--rows-per-part", "4", "--max-batch-size", "4", "--progress-file", str(progress)),
    )
    child = Child(tmp_path, *asked)
    child.wait_for(lambda _: len(parts_beside(output)) >= 2)
    child.process.terminate()
    stopped = child.end()
    assert stopped.code == 128 + signal.SIGTERM
    assert stopped.termination["reason"] == "Stopped"
    done = rows_of_parts(parts_beside(output))
    assert stopped.termination["rows"] == done == json.loads(progress.read_text())["rows_done"]
    assert not output.exists()
    timed_out = run_batch(tmp_path, *asked, "--timeout-seconds", "1")
    assert (timed_out.code, timed_out.termination["reason"]) == (124, "Timeout")
    assert "goes on from there" in timed_out.termination["message"]


@pytest.mark.parametrize("step", range(1, 12, 2))
def test_a_full_disk_is_named_and_loses_nothing(model: Model, tmp_path: Path, rows: Path, step: int) -> None:
    output = tmp_path / "out.npy"
    full = run_batch(tmp_path, *arguments(model, rows, output), fault=FailFsync(step, errno.ENOSPC))
    assert (full.code, full.termination["reason"]) == (1, "StorageFailed"), full.log
    assert "No space left on device. Free space" in full.termination["message"]
    again = run_batch(tmp_path, *arguments(model, rows, output))
    assert again.code == 0, again.log
    assert len(np.load(output)) == ROWS


def test_two_runs_at_once_do_not_share_an_output(model: Model, tmp_path: Path) -> None:
    source, output = tmp_path / "in.npy", tmp_path / "out.npy"
    np.save(source, np.ones((200, 16), np.float32))
    asked = (
        *("--model-path", str(model("slow")), "--input", str(source), "--output", str(output)),
        *("--rows-per-part", "4", "--max-batch-size", "4"),
    )
    first = Child(tmp_path, *asked)
    first.wait_for(lambda _: bool(parts_beside(output)))
    other = tmp_path / "other"
    other.mkdir()
    second = run_batch(other, *asked)
    assert second.code == 2
    assert "another run writes it" in second.termination["message"]
    first.process.kill()
    assert first.end().code == -signal.SIGKILL
    third = Child(other, *asked)  # the lock ended with its holder
    third.wait_for(lambda log: "were done by an earlier run" in log)
    third.process.terminate()
    assert third.end().termination["rows_resumed"] >= 4


def test_other_data_or_another_model_is_refused_until_told_to_restart(
    model: Model, tmp_path: Path, rows: Path
) -> None:
    output = tmp_path / "out.npy"
    killed = run_batch(tmp_path, *arguments(model, rows, output), fault=KillAt(20))
    assert killed.code == -signal.SIGKILL
    there = parts_beside(output)
    assert there
    np.save(rows, np.zeros((ROWS, 64), np.float32))
    changed = run_batch(tmp_path, *arguments(model, rows, output))
    assert (changed.code, changed.termination["reason"]) == (3, "InputRefused")
    assert "--restart" in changed.termination["message"]
    assert parts_beside(output) == there
    anew = run_batch(tmp_path, *arguments(model, rows, output), "--restart")
    assert (anew.code, anew.termination.get("rows_resumed", 0)) == (0, 0)
    assert np.ptp(np.load(output), axis=0).max() == 0
    other = run_batch(tmp_path, *arguments(lambda name: model({"mlp": "add"}[name]), rows, output))
    assert (other.code, other.termination["reason"]) == (1, "ModelRefused")
    output.write_bytes(output.read_bytes() + b"x")
    edited = run_batch(tmp_path, *arguments(model, rows, output))
    assert (edited.code, edited.termination["reason"]) == (2, "SettingsRefused")
    assert "changed since" in edited.termination["message"]
