"""Starts programs so that they can be found again, and ends exactly those."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tools.cluster.errors import ClusterError, ProgramFailedError
from tools.cluster.record import ProcessIdentity, Record, StartedProgram

RUN_VARIABLE = "MCP2026_CLUSTER_RUN"
"""Carries the run id into every process that a run starts."""


def parse_stat(stat: str) -> tuple[str, int]:
    """Return the state letter and the start time in ticks from the text of /proc/PID/stat.

    The program's name stands in brackets and may itself hold spaces and brackets, so fields are counted
    from the last bracket.
    """
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of a living process; None if there is none, or only its exit status is left."""
    try:
        state, ticks = parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else ProcessIdentity(pid, ticks)


def is_alive(identity: ProcessIdentity) -> bool:
    """Tell whether this very process still runs."""
    return identify(identity.pid) == identity


def start(
    record: Record,
    program: str,
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
) -> StartedProgram:
    """Start a program of the run in its own session, with its output in a log file, and record it."""
    log = Path(record.folder) / "logs" / f"{program}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=record.folder,
            env={**os.environ, **(environment or {}), RUN_VARIABLE: record.run_id},
            start_new_session=True,
        )
    # The parent never waits for it through this object: `end` does, by its identity.
    process.returncode = 0
    identity = identify(process.pid)
    if identity is None:
        raise ProgramFailedError(program, "ended at once", log)
    started = StartedProgram(program, identity, str(log))
    record.programs.append(started)
    record.save()
    return started


def of_run(run_id: str) -> list[ProcessIdentity]:
    """Return the living processes that carry a run's id in the environment they were started with."""
    marker = f"{RUN_VARIABLE}={run_id}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if marker in (entry / "environ").read_bytes().split(b"\0"):
                    identity = identify(int(entry.name))
                    if identity is not None and identity.pid != os.getpid():
                        found.append(identity)
    return found


def end(identities: Iterable[ProcessIdentity], timeout_s: float = 30.0) -> None:
    """Kill these processes and return when all have ended.

    Nothing of a run is worth keeping, so they are not asked first. A process is taken hold of by a file
    descriptor before its start time is compared, so one that got the same id later is never hit.
    """
    waiting: dict[int, int] = {}
    try:
        for identity in identities:
            try:
                descriptor = os.pidfd_open(identity.pid)
            except ProcessLookupError:
                continue
            if is_alive(identity):
                waiting[descriptor] = identity.pid
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            else:
                os.close(descriptor)
                _reap(identity.pid)
        if left := _wait_all(dict(waiting), time.monotonic() + timeout_s):
            raise ClusterError(f"killed, but not ended after {timeout_s:.0f} s: processes {sorted(left)}")
    finally:
        for descriptor in waiting:
            os.close(descriptor)


def _wait_all(waiting: dict[int, int], deadline: float) -> list[int]:
    """Wait for the processes behind these descriptors; return the ids of those that are left in time."""
    poll = select.poll()
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN)
    while waiting and (left := deadline - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(left * 1000):
            poll.unregister(descriptor)
            _reap(waiting.pop(descriptor))
    return list(waiting.values())


def _reap(pid: int) -> None:
    """Collect the exit status if the process was a child of this one."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
