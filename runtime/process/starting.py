"""The first steps of a worker process: `python -m mcp2026.runtime.process.starting <descriptor> <parent>`.

A worker holds listening sockets from its first moment, and needs a second or more to load its libraries. If
its parent were killed meanwhile, the next server would find the addresses in use. So until it listens to its
parent, the kernel ends it with the parent; from then on it notices by itself, and answers what it accepted.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2)


def main() -> None:
    """Load the worker and run it on the control socket whose descriptor is the first argument."""
    descriptor, parent = map(int, sys.argv[1:])
    _end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        return  # it ended before that
    from mcp2026.runtime.process.worker import run

    _end_with_parent(0)
    run(descriptor)


def _end_with_parent(number: int) -> None:
    """Have this signal sent when the parent ends; 0: none."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


if __name__ == "__main__":
    main()
