"""How a run ends and what it tells, as tables; and the settings that it refuses."""

import io
import json
import logging
from pathlib import Path

import pytest
from rich.console import Console

from mcp2026.api.errors import SettingsError
from mcp2026.runtime.dataset.errors import (
    ExecutionFailedError,
    InputRefusedError,
    ModelRefusedError,
    OutOfMemoryError,
    OutputRefusedError,
    Reason,
    StoppedError,
    StorageFailedError,
)
from mcp2026.runtime.dataset.formats import choice
from mcp2026.runtime.dataset.plan import Result
from mcp2026.runtime.dataset.progress import Counts, LogLines, ProgressFile, Snapshot, reporters
from mcp2026.runtime.dataset.settings import read_settings
from mcp2026.runtime.dataset.termination import LONGEST_BYTES, Termination, encode, ended

PROGRESS = Snapshot("running", 40, 100, 10, 4, 10, 3.0, 20.0)
RESULT = Result("i", "m", "npy", 100, 4_000, "digest")


@pytest.mark.parametrize(
    ("outcome", "signal_number", "timeout", "code", "reason"),
    [
        (RESULT, None, None, 0, "Completed"),
        (RESULT, 15, None, 0, "Completed"),  # the signal came when all was done
        (StoppedError(), 15, None, 143, "Stopped"),
        (StoppedError(), 2, None, 130, "Stopped"),
        (None, 15, None, 143, "Stopped"),  # it did not stop in time
        (StoppedError(), None, 5.0, 124, "Timeout"),
        (None, None, 5.0, 124, "Timeout"),
        (InputRefusedError("d", "p", "r"), None, None, 3, "InputRefused"),
        (ModelRefusedError("d", "p", "r"), None, None, 1, "ModelRefused"),
        (OutputRefusedError("d", "p", "r"), None, None, 2, "SettingsRefused"),
        (SettingsError("--x", "p", "a"), None, None, 2, "SettingsRefused"),
        (ExecutionFailedError("d", "p", "r"), None, None, 1, "ExecutionFailed"),
        (StorageFailedError("d", "p", "r"), None, None, 1, "StorageFailed"),
        (OutOfMemoryError("d", "p", "r"), None, None, 1, "OutOfMemory"),
        (MemoryError(), None, None, 1, "OutOfMemory"),
        (ZeroDivisionError("x"), None, None, 1, "ExecutionFailed"),
    ],
)
def test_each_end_has_a_code_and_a_reason(
    outcome: Result | BaseException | None,
    signal_number: int | None,
    timeout: float | None,
    code: int,
    reason: str,
) -> None:
    told = ended(outcome, PROGRESS, signal_number=signal_number, timeout_seconds=timeout)
    assert (told.exit_code, told.reason) == (code, reason)
    assert (told.sha256 == "digest") == (code == 0)
    assert told.message
    assert told.rows == 40


def test_the_message_is_one_line_that_the_kubelet_reads_whole() -> None:
    long = Termination(3, Reason.INPUT_REFUSED, '\u2028"\n' * 5_000)
    line = encode(long)
    assert len(line) <= LONGEST_BYTES
    assert line.count(b"\n") == 1
    assert json.loads(line)["reason"] == "InputRefused"


def test_progress_counts_what_was_resumed_apart() -> None:
    counts = Counts()
    assert counts.snapshot(5.0).rows_per_second == 0
    counts.begin(100, 10, 40, 4)
    assert counts.began is not None
    counts.part_done(10)
    counts.part_done(10)
    told = counts.snapshot(counts.began + 2)
    assert (told.rows_done, told.rows_resumed, told.parts_done) == (60, 40, 6)
    assert (told.rows_per_second, told.eta_seconds) == (10.0, 4.0)


def test_the_log_has_a_line_in_ten_seconds_and_one_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lines = LogLines()
    for tick in range(105):
        lines.report(PROGRESS, 1_000 + tick * 0.2, last=False)
    lines.report(PROGRESS, 1_021, last=True)
    assert len(caplog.records) == 4


def test_a_progress_file_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = ProgressFile(tmp_path / "none" / "p.json")
    for now in range(5):
        file.report(PROGRESS, float(now), last=False)
    assert len(caplog.records) == 1


def test_a_terminal_gets_a_bar_and_a_pipe_gets_lines(tmp_path: Path) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=100)
    (bar,) = reporters("auto", None, terminal)
    bar.report(PROGRESS, 0.0, last=True)
    assert "40/100" in screen.getvalue()
    assert "(10 resumed)" in screen.getvalue()
    pipe = Console(file=io.StringIO(), force_terminal=False)
    kinds = [type(one) for one in reporters("auto", tmp_path / "p.json", pipe)]
    assert kinds == [LogLines, ProgressFile]
    assert reporters("none", None, terminal) == []


def test_parquet_without_pyarrow_is_refused_by_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=r"needs pyarrow; allowed: .*mcp2026\[parquet\]"):
        read_settings((*GOOD, "--input", "in.parquet"), {})


GOOD = ("--model-path", "m.onnx", "--input", "in.npy", "--output", "out.npz")


def test_a_flag_wins_over_its_variable() -> None:
    environment = {"MCP2026_THREADS": "3", "MCP2026_RESTART": "true", "MCP2026_SERVING_CONFIG": "other"}
    settings = read_settings((*GOOD, "--threads", "2"), environment)
    assert (settings.threads, settings.restart) == (2, True)
    assert settings.config.model == "m"
    assert not read_settings((*GOOD, "--no-restart"), environment).restart


@pytest.mark.parametrize(
    ("flags", "environment", "message"),
    [
        (("--serving-config", "x"), {}, "exactly one of them"),
        (("--input", "out.npz"), {}, "--output: is the input"),
        (("--input", "in.csv"), {}, "has the suffix 'csv'; allowed: .npy, .npz, .jsonl, .parquet"),
        (("--input-sha256", "ABC"), {}, "64 lower-case hex digits"),
        (("--rows-per-part", "0"), {}, "a whole number from 1"),
        (("--timeout-seconds", "nan"), {}, "--timeout-seconds: nan is out of range"),
        (("--max-batch-size", "4097"), {}, "from 1 to 4096"),
        (("--claim", "x"), {}, "--claim: 'x' is no pair"),
        (("--version", "2"), {}, "--version: '2' is none of the configuration; allowed: 1"),
        (
            (),
            {"MCP2026_PROGRESS": "loud"},
            "MCP2026_PROGRESS: 'loud' is not known; allowed: auto, bar",
        ),
        (("--nothing",), {}, "--nothing"),
    ],
)
def test_a_wrong_setting_is_named(flags: tuple[str, ...], environment: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings((*GOOD, *flags), environment)
    assert message in str(refused.value)
