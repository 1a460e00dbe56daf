"""A comparison that was killed goes on where it ended, and never mixes what does not compare."""

from pathlib import Path

import msgspec
import pytest

from bench.client.load import LoadResult
from bench.errors import BenchError
from bench.machine import Machine
from bench.report import report
from bench.results import FILE, Cell, Measurement, ResultFile, Settings, Start

SETTINGS = Settings(
    seconds=3,
    threads=1,
    max_batch_size=32,
    delay_ms=5,
    server_cores="0",
    client_cores="1",
    client="h2load",
)
START = Start(Machine("a processor", 2, 24.0, "6.1", 0.1, "2026-11-30 10:00"), {"mlserver": "1.7.1"})
OURS = Cell("mlp", "json", 8, "mcp2026")
BARE = Cell("mlp", "json", 8, "bare")
GRPC = Cell("mlp", "grpc", 8, "bare")
RESULT = LoadResult(1234.5, 0.5, 1.5, 0, 3703)


def begun(folder: Path) -> ResultFile:
    results = ResultFile(folder)
    results.begin(SETTINGS, START)
    return results


def test_what_was_measured_is_there_after_a_restart(tmp_path: Path) -> None:
    begun(tmp_path).append(Measurement(OURS, 0, result=RESULT))
    again = begun(tmp_path)
    assert again.is_done(OURS, 0)
    assert not again.is_done(OURS, 1)
    assert not again.is_done(BARE, 0)
    assert again.rounds() == {OURS: {0: RESULT}}
    assert again.starts == [START, START]


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_a_line_cut_short_by_a_kill_is_measured_again(tmp_path: Path, kept: int) -> None:
    results = begun(tmp_path)
    results.append(Measurement(OURS, 0, result=RESULT))
    whole = (tmp_path / FILE).read_bytes()
    results.append(Measurement(BARE, 0, result=RESULT))
    last = (tmp_path / FILE).read_bytes()[len(whole) :]
    (tmp_path / FILE).write_bytes(whole + last[:kept])

    again = begun(tmp_path)
    assert again.is_done(OURS, 0)
    assert not again.is_done(BARE, 0)
    again.append(Measurement(BARE, 0, result=RESULT))
    assert set(ResultFile(tmp_path).rounds()) == {OURS, BARE}


def test_other_settings_are_refused(tmp_path: Path) -> None:
    begun(tmp_path)
    with pytest.raises(BenchError, match="other settings"):
        ResultFile(tmp_path).begin(msgspec.structs.replace(SETTINGS, threads=2), START)


def test_a_file_of_something_else_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("hello\n")
    with pytest.raises(BenchError, match="line 1"):
        ResultFile(tmp_path)
    assert (tmp_path / FILE).read_text() == "hello\n"


def test_what_failed_is_tried_again_and_what_is_not_supported_is_not(tmp_path: Path) -> None:
    results = begun(tmp_path)
    results.append(Measurement(OURS, 0, failed="it ended at start\nand a long log"))
    results.append(Measurement(GRPC, 0, not_supported="HTTP status 404"))
    assert not results.is_done(OURS, 0)
    assert results.is_done(GRPC, 0)
    assert results.is_done(GRPC, 1)
    assert results.reasons() == {
        OURS: "failed: it ended at start\nand a long log",
        GRPC: "not supported: HTTP status 404",
    }
    results.append(Measurement(OURS, 0, result=RESULT))
    assert OURS not in results.reasons()


def test_the_report_says_machine_versions_rates_ratios_reasons_and_noise(tmp_path: Path) -> None:
    results = begun(tmp_path)
    for number, (ours, bare) in enumerate([(900.0, 1000.0), (800.0, 1000.0), (1000.0, 1000.0)]):
        results.append(Measurement(OURS, number, result=LoadResult(ours, 1.25, 12.5, 0, 1)))
        results.append(Measurement(BARE, number, result=LoadResult(bare, 1.0, 2.0, 0, 1)))
    results.append(Measurement(GRPC, 0, not_supported="no such interface"))
    text = report(results)
    assert "a processor, 2 cores, 24.0 GiB" in text
    assert "mlserver 1.7.1" in text
    assert "### mlp, json" in text
    assert "| 8 | mcp2026 | 900 | 800 to 1,000 | 1.25 | 12.5 | 0 |  | 0.90 |  |" in text
    assert "- bare, mlp, grpc: not supported: no such interface" in text
    assert "Rounds: 3." in text
    assert "worst 22%" in text
