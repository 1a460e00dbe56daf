"""`python -m tools.suite`: all tests, part after part, those that may share the machine several at a time.

A test is in exactly one part: the marks in ALONE say which ones have the machine to themselves. With
arguments pytest runs once, with these: `python -m tools.suite tests/unit/api -x`.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

ALONE: Final = ("serial", "control_plane", "kwok", "node")
"""Marks of tests that run one after another, in one process. Unit tests have none: they use no clusters and
measure nothing."""
MOST_AT_A_TIME: Final = 4
"""Tests of the contracts start servers, which want a core as well."""
_NOTHING_SELECTED: Final = 5
"""Exit status of a pytest that had no test to run."""
_INTERRUPTED: Final = 2


@dataclass(frozen=True, slots=True)
class Part:
    """Tests that one run of pytest takes."""

    title: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a part went."""

    part: Part
    status: int
    """Exit status of pytest."""
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether it has to be looked at."""
        return self.status not in (0, _NOTHING_SELECTED)


def parts(processes: int) -> tuple[Part, ...]:
    """Return the parts in the order in which they run: what says most in a minute comes first."""
    marks = " or ".join(ALONE)
    sharing = ("-n", str(processes), "--dist", "loadfile")
    others = ("tests", "--ignore=tests/unit", "-m")
    return (
        Part(f"unit tests, {processes} at a time", ("tests/unit", *sharing)),
        Part(f"contract tests, {processes} at a time", (*others, f"not ({marks})", *sharing)),
        Part("what has the machine to itself: measurements, control planes, a node", (*others, marks)),
    )


def run_parts(chosen: Sequence[Part], run: Callable[[Sequence[str]], int]) -> int:
    """Run parts one after another, whatever becomes of each, and say how they went.

    Returns:
        0, or the exit status of the first part that failed. An interrupted part is the last one.

    """
    outcomes: list[Outcome] = []
    for number, part in enumerate(chosen, 1):
        print(f"\n==> part {number} of {len(chosen)}: {part.title}", flush=True)
        began = time.monotonic()
        status = run(part.arguments)
        outcomes.append(Outcome(part, status, time.monotonic() - began))
        if status == _INTERRUPTED:
            break
    print()
    for outcome in outcomes:
        said = f"FAILED ({outcome.status})" if outcome.failed else "passed"
        print(f"==> {said:10s} {outcome.seconds / 60:5.1f} min  {outcome.part.title}", flush=True)
    return next((outcome.status for outcome in outcomes if outcome.failed), 0)


def pytest(arguments: Sequence[str]) -> int:
    """Run pytest and return its exit status; after an interrupt it gets the time that its fixtures need."""
    process = subprocess.Popen([sys.executable, "-m", "pytest", *arguments])
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for, or everything."""
    if arguments:
        return pytest(arguments)
    return run_parts(parts(min(len(os.sched_getaffinity(0)), MOST_AT_A_TIME)), pytest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
