"""What a server that starts does by what the one before it left, what it reports, and how its log is kept."""

import os
from pathlib import Path

import pytest

from mcp2026.api.errors import SettingsError
from mcp2026.api.serving import ServedVersion, ServingConfig, decode_serving_config, encode_serving_config
from mcp2026.runtime.dataset.errors import StorageFailedError
from mcp2026.runtime.dataset.stores.locations import Surroundings, parse_target
from mcp2026.runtime.ending import archiving, record
from mcp2026.runtime.ending.counting import answered
from mcp2026.runtime.ending.log_copy import LogCopy, LogFiles
from mcp2026.runtime.ending.record import Record, Step, Todo, first_step
from mcp2026.runtime.ending.report import (
    LONGEST_BYTES,
    Reason,
    Report,
    after_drain,
    archived,
    encode,
    killed_in_drain,
    not_archived,
    served_nothing,
)

DONE = after_drain(7, 3, 0)
CUT = after_drain(7, 3, 1)


@pytest.mark.parametrize("says_stopped", [None, 9], ids=["old configuration", "configuration says stopped"])
@pytest.mark.parametrize(
    ("found", "todo", "told"),
    [
        (Record(Step.DRAINING, 7), Todo.ARCHIVE, killed_in_drain(7)),
        (Record(Step.DRAINED, 7, DONE), Todo.ARCHIVE, DONE),
        (Record(Step.DRAINED, 7, CUT), Todo.ARCHIVE, CUT),
        (Record(Step.REPORTED, 7, DONE), Todo.PARK, DONE),
        (Record(Step.PARKED, 7, DONE), Todo.REPORT, DONE),
    ],
)
def test_a_record_decides_whatever_the_configuration_says(
    found: Record, todo: Todo, told: Report, says_stopped: int | None
) -> None:
    assert first_step(found, says_stopped) == (todo, told)


@pytest.mark.parametrize(
    ("error", "said", "tried_again"),
    [
        (StorageFailedError("/logs", "no space left", "Make room"), "no space left", True),
        (PermissionError(13, "Permission denied"), "Permission denied", True),
        (SettingsError("AWS_REGION", "is odd", "a region"), "AWS_REGION", False),
        (ValueError("odd"), "ValueError: odd", False),
    ],
    ids=["store", "system", "settings", "unforeseen"],
)
def test_whatever_keeps_a_log_from_its_archive_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str, tried_again: bool
) -> None:
    asked = []

    def refuse(*_arguments: object, **_named: object) -> None:
        asked.append(1)
        raise error

    monkeypatch.setattr(archiving, "archive_logs", refuse)
    monkeypatch.setattr(archiving, "_FIRST_BACKOFF", 0.05)
    monkeypatch.setattr(archiving, "ATTEMPTS_SECONDS", 1.0)
    target = parse_target("--log-archive", str(tmp_path / "pod.log.gz"), Surroundings(tmp_path, {}))
    told = archiving.with_archive(DONE, [], target, tmp_path, allow_http=False)
    assert (told.exit_code, told.reason) == (4, Reason.ARCHIVE_FAILED)
    assert said in str(told.archive_error)
    assert (len(asked) > 1) is tried_again


def test_without_a_record_the_configuration_decides() -> None:
    assert first_step(None, None) == (Todo.SERVE, None)
    assert first_step(None, 9) == (Todo.ARCHIVE, served_nothing(9))


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert record.read(tmp_path) is None
    for step in Step:
        record.write(Record(step, 7, DONE), tmp_path)
        assert record.read(tmp_path) == Record(step, 7, DONE)
    assert [path.name for path in tmp_path.iterdir()] == [record.FILE]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\0" * 300,
        b"[1]",
        b'{"step":"Reporte!","revision":7}',
        b'{"step":"Draining","revision":1e400}',
        b'{"step":"\xff","revision":7}',
        b'{"step":"Reported","revision":7,"report":{"exit_code":-1}}',
    ],
    ids=["empty", "cut short", "zeros", "another form", "a step", "a number", "no text", "a report"],
)
@pytest.mark.parametrize("says_stopped", [None, 9], ids=["old configuration", "configuration says stopped"])
def test_after_a_damaged_record_the_log_is_archived_and_the_end_is_not_known(
    tmp_path: Path, content: bytes, says_stopped: int | None
) -> None:
    (tmp_path / record.FILE).write_bytes(content)
    todo, told = first_step(record.read(tmp_path), says_stopped)
    assert todo is Todo.ARCHIVE
    assert told is not None
    assert (told.exit_code, told.reason, told.revision) == (1, Reason.DRAIN_INCOMPLETE, says_stopped or 0)
    assert "record is damaged" in told.message


def test_a_record_that_is_not_for_this_user_is_an_error(tmp_path: Path) -> None:
    (tmp_path / record.FILE).mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        record.read(tmp_path)


@pytest.mark.parametrize(
    ("told", "code", "reason"),
    [
        (served_nothing(1), 0, "Stopped"),
        (DONE, 0, "Stopped"),
        (CUT, 1, "DrainIncomplete"),
        (after_drain(7, 0, 143), 143, "DrainIncomplete"),
        (killed_in_drain(7), 1, "DrainIncomplete"),
        (archived(DONE, "/a", "ab" * 32), 0, "Stopped"),
        (not_archived(DONE, "/a", "full"), 4, "ArchiveFailed"),
        (not_archived(CUT, "/a", "full"), 1, "DrainIncomplete"),
    ],
)
def test_each_end_has_a_code_and_a_reason(told: Report, code: int, reason: str) -> None:
    assert (told.exit_code, told.reason) == (code, reason)


def test_a_report_is_one_line_that_is_read_whole() -> None:
    line = encode(not_archived(DONE, "/" * 1_200, "\n\u00e4" * 10_000))
    assert len(line) <= LONGEST_BYTES
    assert line.count(b"\n") == 1


def test_answers_are_counted_over_models_and_codes() -> None:
    page = (
        b"# TYPE mcp2026_requests_total counter\n"
        b'mcp2026_requests_total{model="m",version="v1",code="200"} 3.0\n'
        b'mcp2026_requests_total{model="a b",version="",code="404"} 2.0\n'
        b'mcp2026_requests_created{model="m"} 9.0\n'
    )
    assert answered(page) == 5


def test_the_newest_lines_are_kept_and_no_more_than_two_files_of_them(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, file_bytes=1_000)
    for number in range(1_000):
        files.write(b"line %d\n" % number)
    files.close()
    files = LogFiles(tmp_path, file_bytes=1_000)
    files.write(b"after a restart\n")
    lines = b"".join(path.read_bytes() for path in files.paths()).splitlines()
    files.close()
    assert lines[-1] == b"after a restart"
    numbers = [int(line.split()[1]) for line in lines[:-1]]
    assert numbers == list(range(numbers[0], 1_000))
    assert 1_000 <= sum(map(len, lines)) + len(lines) <= 2_100
    assert len(list(tmp_path.iterdir())) == 2


def test_lines_without_end_are_bounded_as_well(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, file_bytes=1_000)
    for _ in range(1_000):
        files.write(b"x" * 100)
    files.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4_000


def test_standard_error_is_copied_and_passed_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    copy = LogCopy(LogFiles(tmp_path))
    os.write(2, b"one\n")
    os.system("echo two >&2")  # a process that this one starts
    copy.close()
    os.write(2, b"three\n")
    assert (tmp_path / "server.log").read_text() == "one\ntwo\n"
    assert capfd.readouterr().err == "one\ntwo\nthree\n"


def test_only_a_document_that_says_so_is_stopped() -> None:
    config = ServingConfig("m", (ServedVersion("v1", "/v1"),), revision=3)
    assert b"stopped" not in encode_serving_config(config)
    stopped = ServingConfig("m", (ServedVersion("v1", "/v1"),), revision=3, stopped=True)
    assert decode_serving_config(encode_serving_config(stopped)).stopped is True
