"""Ctrl-C and SIGTERM as terminals, shells and `timeout` send them: early, twice, and to the whole group."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from mcp2026.runtime.process.supervisor import SAME_SIGNAL_SECONDS
from tests.contract.runtime.server_process import PATIENCE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_group_while_workers_start_ends_all_quietly(model, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "mcp2026.runtime", "--model-path", str(model("add")), "--port", "0"]
    server = subprocess.Popen(
        [*command, "--workers", "2"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert server.stderr is not None
    assert "loading add" in server.stderr.readline()
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    deadline = time.monotonic() + PATIENCE
    while not _importing(workers := children.read_text().split()) or len(workers) < 2:
        assert time.monotonic() < deadline
    os.killpg(server.pid, number)
    _, said = server.communicate(timeout=PATIENCE)
    assert server.returncode == 0
    assert "Traceback" not in said
    assert "ERROR" not in said


def _importing(processes: list[str]) -> bool:
    return all("numpy" in Path(f"/proc/{pid}/maps").read_text() for pid in processes)


def test_signals_that_come_together_are_one(start) -> None:
    server = start("add")
    server.process.send_signal(signal.SIGTERM)
    server.process.send_signal(signal.SIGINT)
    assert server.wait() == 0


def test_a_later_signal_cuts_the_exit_short(start) -> None:
    server = start("add", "--lame-duck-seconds", "600")
    server.process.send_signal(signal.SIGTERM)
    server.wait_for_log(lambda line: "exit begins" in line["message"])

    status = None
    while status is None:  # one that comes too soon is taken for the first
        time.sleep(2 * SAME_SIGNAL_SECONDS)
        server.process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            status = server.process.wait(1)
    assert status == 128 + signal.SIGINT
