"""MPS daemons as real processes: started, asked, taken over, ended, and what happens when they misbehave."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mcp2026.api.gpu_sharing import Sharing
from mcp2026.device_plugin.adapters.mps_control import MpsControl, daemon_environment
from mcp2026.device_plugin.adapters.mps_daemons import MpsDaemons
from mcp2026.device_plugin.adapters.mps_record import process_start_time
from mcp2026.device_plugin.driver import ComputeMode
from mcp2026.device_plugin.sharing.errors import MpsError
from mcp2026.device_plugin.sharing.mps_limits import MpsLimits
from mcp2026.device_plugin.sharing.observation import DaemonState, MpsDaemon
from tests.fakes.mps import FakeMps, running_mps

GPU = "GPU-a1004006-0000-4000-8000-000000000000"
MPS = Sharing("MPS", replicas=4)
CEILING = MpsLimits(100, 81920)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short path: that of a Unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="mps-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def fake(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMps]:
    with running_mps(directory / "bin") as fake:
        for name, value in fake.environment.items():
            monkeypatch.setenv(name, value)
        yield fake


@pytest.fixture
def daemons(fake: FakeMps, directory: Path) -> MpsDaemons:
    return new_daemons(fake, directory)


def new_daemons(fake: FakeMps, directory: Path, answer_s: float = 5.0) -> MpsDaemons:
    """As a plugin that starts anew has them."""
    return MpsDaemons(directory / "mps", str(fake.program), answer_s)


def start(daemons: MpsDaemons) -> MpsDaemon:
    daemons.reserve(GPU, MPS, ComputeMode.DEFAULT)
    daemons.start(GPU, CEILING)
    return daemons.observe().daemons[GPU]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_daemon_is_bound_to_its_gpu_and_gets_the_ceiling(
    daemons: MpsDaemons, fake: FakeMps, directory: Path
) -> None:
    assert not daemons.observe().daemons
    daemon = start(daemons)
    assert daemon.state is DaemonState.SERVING
    assert daemon.sharing == MPS
    [pid] = fake.processes()
    assert daemon.pids == {pid}
    home = directory / "mps" / GPU
    environment = (home / "log" / "environment").read_text().splitlines()
    assert {
        f"CUDA_VISIBLE_DEVICES={GPU}",
        f"CUDA_MPS_PIPE_DIRECTORY={home}/pipe",
        f"CUDA_MPS_LOG_DIRECTORY={home}/log",
    } <= set(environment)
    control = MpsControl(str(fake.program), daemon_environment(GPU, home / "pipe", home / "log"), 5)
    assert control._ask("get_default_device_pinned_mem_limit 0") == "81920M"
    assert control.thread_percentage() == 100
    assert os.getsid(pid) == pid


def test_quit_ends_it_and_its_record_goes_at_last(daemons: MpsDaemons, fake: FakeMps) -> None:
    start(daemons)
    daemons.stop(GPU)
    assert not fake.processes()
    assert daemons.observe().daemons[GPU].state is DaemonState.DOWN
    daemons.release(GPU)
    assert not daemons.observe().daemons


def test_its_servers_are_its_processes(daemons: MpsDaemons, fake: FakeMps) -> None:
    daemon = start(daemons)
    fake.behave("server 4711", "server 4712")
    assert daemons.observe().daemons[GPU].pids == daemon.pids | {4711, 4712}


def test_a_new_plugin_takes_over_a_daemon_that_runs(fake: FakeMps, directory: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.contract.test_mps_daemons import *\n"
        "daemons = MpsDaemons(Path(sys.argv[1]), sys.argv[2]); start(daemons)"
    )
    arguments = [sys.executable, "-c", code, str(directory / "mps"), str(fake.program)]
    subprocess.run(arguments, cwd=Path(__file__).parents[2], check=True, timeout=60)
    taken_over = new_daemons(fake, directory)
    daemon = taken_over.observe().daemons[GPU]
    assert daemon.state is DaemonState.SERVING
    assert daemon.pids == set(fake.processes())
    taken_over.stop(GPU)
    assert not fake.processes()


def test_a_daemon_started_just_before_its_plugin_ended_is_found(
    daemons: MpsDaemons, fake: FakeMps, directory: Path
) -> None:
    start(daemons)
    daemons.reserve(GPU, MPS, ComputeMode.DEFAULT)  # the record that was there before the start
    [pid] = fake.processes()
    other = new_daemons(fake, directory)
    other.start(GPU, CEILING)
    assert other.observe().daemons[GPU].pids == {pid}


def test_another_process_with_its_number_is_not_taken_for_it(
    daemons: MpsDaemons, fake: FakeMps, directory: Path
) -> None:
    start(daemons)
    [pid] = fake.processes()
    record = directory / "mps" / GPU / "daemon.json"
    record.write_text(record.read_text().replace(f'"pid":{pid}', f'"pid":{os.getpid()}'))
    assert daemons.observe().daemons[GPU].state is DaemonState.DOWN


def test_one_that_crashes_is_down_with_its_last_words_and_starts_again(
    daemons: MpsDaemons, fake: FakeMps
) -> None:
    start(daemons)
    fake.behave("crash")
    daemons.observe()
    wait_until(lambda: daemons.observe().daemons[GPU].state is DaemonState.DOWN)
    assert "out of luck" in daemons.observe().daemons[GPU].reason
    fake.behave()
    daemons.start(GPU, CEILING)
    assert daemons.observe().daemons[GPU].state is DaemonState.SERVING


def test_one_that_is_killed_leaves_a_pipe_that_does_not_hinder_the_next(
    daemons: MpsDaemons, fake: FakeMps
) -> None:
    [pid] = start(daemons).pids
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: daemons.observe().daemons[GPU].state is DaemonState.DOWN)
    daemons.start(GPU, CEILING)
    assert daemons.observe().daemons[GPU].state is DaemonState.SERVING


def test_one_that_refuses_to_start_says_why(daemons: MpsDaemons, fake: FakeMps) -> None:
    fake.behave("refuse An instance of this daemon is already running")
    with pytest.raises(MpsError, match="already running"):
        start(daemons)


def test_one_that_hangs_is_silent_within_the_deadline_and_is_ended(fake: FakeMps, directory: Path) -> None:
    daemons = new_daemons(fake, directory)
    start(daemons)
    fake.behave("silent")
    hasty = new_daemons(fake, directory, answer_s=0.3)
    daemon = hasty.observe().daemons[GPU]
    assert daemon.state is DaemonState.SILENT
    assert "did not answer" in daemon.reason
    hasty.stop(GPU)
    assert not fake.processes()


def test_a_missing_program_says_what_the_container_needs(directory: Path) -> None:
    daemons = MpsDaemons(directory / "mps", str(directory / "nowhere"))
    with pytest.raises(MpsError, match="NVIDIA_DRIVER_CAPABILITIES"):
        start(daemons)


def test_a_record_that_cannot_be_read_is_named(daemons: MpsDaemons, directory: Path) -> None:
    start(daemons)
    other = "GPU-b1004006-0000-4000-8000-000000000000"
    daemons.reserve(other, MPS, ComputeMode.DEFAULT)
    (directory / "mps" / GPU / "daemon.json").write_text("{")
    seen = daemons.observe()
    assert seen.daemons.keys() == {other}
    assert seen.unreadable.keys() == {GPU}
    assert "daemon.json cannot be read" in seen.unreadable[GPU]


def test_daemons_that_are_silent_are_asked_at_once(fake: FakeMps, directory: Path) -> None:
    daemons = new_daemons(fake, directory)
    start(daemons)
    record = (directory / "mps" / GPU / "daemon.json").read_text()
    for number in range(5):
        home = directory / "mps" / f"GPU-{number}"
        (home / "pipe").parent.mkdir()
        (home / "daemon.json").write_text(record)
        (home / "pipe").symlink_to(directory / "mps" / GPU / "pipe")
    fake.behave("silent")
    patience = 3.0
    began = time.monotonic()
    seen = new_daemons(fake, directory, answer_s=patience).observe().daemons
    assert time.monotonic() - began < 3 * patience
    assert [daemon.state for daemon in seen.values()] == [DaemonState.SILENT] * 6


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda home: (home / "pipe").write_text(""), id="a file where the pipes shall be"),
        pytest.param(lambda home: (home / "log" / "output.log").mkdir(parents=True), id="no file for output"),
        pytest.param(lambda home: (home / "pipe" / "left").mkdir(parents=True), id="something left behind"),
        pytest.param(lambda home: (home.parent / "shm").write_text(""), id="no folder for shared memory"),
        pytest.param(lambda home: (home / "daemon.new").mkdir(), id="no file for the record"),
    ],
)
def test_a_folder_that_cannot_be_used_is_named_with_the_flag(
    spoil: Callable[[Path], object], daemons: MpsDaemons, directory: Path
) -> None:
    home = directory / "mps" / GPU
    home.mkdir(parents=True)
    spoil(home)
    with pytest.raises(MpsError, match=rf"{directory}.*--mps-directory must be"):
        start(daemons)


def test_a_program_that_hangs_with_its_children_is_given_up(directory: Path) -> None:
    program = directory / "wrapped"
    program.write_text(f"#!/bin/sh\nsleep 60 & echo $! > {directory}/child\nwait\n")
    program.chmod(0o755)
    control = MpsControl(str(program), dict(os.environ), 0.5)
    with pytest.raises(MpsError, match="did not answer"):
        control.quit()
    child = int((directory / "child").read_text())
    wait_until(lambda: process_start_time(child) is None)


@pytest.mark.parametrize("answer", ["", "nonsense", "\u0663", "9" * 5000, "\xff\xfe"])
def test_any_answer_is_borne(answer: str, directory: Path) -> None:
    (directory / "answer").write_bytes(answer.encode("latin-1", "replace"))
    program = directory / "talks"
    program.write_text(f"#!/bin/sh\ncat > {directory}/asked; cat {directory}/answer\n")
    program.chmod(0o755)
    control = MpsControl(str(program), dict(os.environ), 5)
    for ask in (control.thread_percentage, control.servers):
        with suppress(MpsError):
            ask()
