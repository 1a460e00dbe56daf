"""Long work tells what it is doing and for how long it has been at it."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.cluster.errors import ClusterError, log_tail

Report = Callable[[str], None]
"""Receives one line of progress."""

REPORT_EVERY_S = 10.0
"""Seconds between two lines about the same piece of work."""


def to_stderr(line: str) -> None:
    """Write a line of progress to standard error, at once."""
    print(line, file=sys.stderr, flush=True)


def run_reporting(
    what: str,
    command: Sequence[str | Path],
    report: Report,
    *,
    log: Path,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a command that takes long, with its output in `log`, and report every ten seconds.

    Raises ClusterError with the command and the end of its log if it fails.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    report(f"{what} …")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(environment) if environment is not None else None,
        )
        try:
            while True:
                try:
                    status = process.wait(timeout=REPORT_EVERY_S)
                    break
                except subprocess.TimeoutExpired:
                    report(f"{what} … {time.monotonic() - started:.0f} s")
        except BaseException:
            process.kill()
            process.wait()
            raise
    if status != 0:
        words = " ".join(str(word) for word in command)
        raise ClusterError(f"{what} failed (status {status}): {words}\nthe end of {log}:\n{log_tail(log)}")
    report(f"{what}: done in {time.monotonic() - started:.0f} s")
