"""`mcp2026-batch` as a process that a test can kill at a chosen step, and what it leaves behind.

Children are forked from a server that has imported everything, so a run costs little. The steps are calls of
the system: they are patched in the child, not switched on in the product.
"""

import json
import multiprocessing
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Longest that a test waits for something that will surely happen, in s."""
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("MCP2026_", "AWS_"))}
COMMAND = [sys.executable, "-m", "mcp2026.runtime.dataset"]

_STEPS = ("fsync", "replace", "unlink", "rmdir", "mkdir")
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["mcp2026.runtime.dataset.__main__", "onnxruntime", "pyarrow.parquet"])

Fault = Callable[[], None]


@dataclass(frozen=True)
class KillAt:
    """Kill the process before its n-th step, counted from 1; `torn`: what an fsync was for is lost."""

    step: int
    torn: bool = False

    def __call__(self) -> None:
        count = 0

        def wrap(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                nonlocal count
                count += 1
                if count == self.step:
                    if self.torn and name == "fsync" and stat.S_ISREG(os.fstat(arguments[0]).st_mode):
                        size = os.fstat(arguments[0]).st_size
                        os.truncate(f"/proc/self/fd/{arguments[0]}", size // 2)
                    os.kill(os.getpid(), signal.SIGKILL)
                return original(*arguments, **named)

            return call

        for name in _STEPS:
            setattr(os, name, wrap(name, getattr(os, name)))


@dataclass(frozen=True)
class KillAtRequest:
    """Kill the process before its n-th request to S3 that changes something, or after it was answered."""

    number: int
    after: bool = False

    def __call__(self) -> None:
        import obstore

        count = 0

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                nonlocal count
                count += 1
                mine = count == self.number
                if mine and not self.after:
                    os.kill(os.getpid(), signal.SIGKILL)
                answer = original(*arguments, **named)
                if mine:
                    os.kill(os.getpid(), signal.SIGKILL)
                return answer

            return call

        obstore.put = wrap(obstore.put)
        obstore.delete = wrap(obstore.delete)


@dataclass(frozen=True)
class FailFsync:
    """Let the n-th fsync fail with this number."""

    step: int
    number: int

    def __call__(self) -> None:
        original, count = os.fsync, 0

        def fsync(descriptor: Any) -> None:
            nonlocal count
            count += 1
            if count == self.step:
                raise OSError(self.number, os.strerror(self.number))
            original(descriptor)

        os.fsync = fsync


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int
    """Negative: the signal that killed it."""
    termination: dict[str, Any]
    log: str


def _child(arguments: Sequence[str], environment: dict[str, str], log: str, fault: Fault | None) -> None:
    with Path(log).open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 2)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    os.environ.clear()
    os.environ.update(environment)
    from mcp2026.runtime.dataset.__main__ import run

    if fault is not None:
        fault()
    code = run(arguments)
    sys.stderr.flush()
    os._exit(code)


class Child:
    """A run that goes on."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        environment: dict[str, str] | None = None,
        fault: Fault | None = None,
    ) -> None:
        self._log = folder / "log.txt"
        self._log.write_bytes(b"")
        self._termination = folder / "termination.json"
        self._termination.unlink(missing_ok=True)
        full = (*arguments, "--termination-message", str(self._termination), "--progress", "none")
        if "--threads" not in arguments:
            full += ("--threads", "1")
        self.process = _CONTEXT.Process(
            target=_child, args=(full, CLEAN | (environment or {}), str(self._log), fault), daemon=True
        )
        self.process.start()

    def wait_for(self, condition: Callable[[str], bool]) -> None:
        """Poll until `condition` holds of the log."""
        deadline = time.monotonic() + PATIENCE
        while not condition(self._log.read_text()):
            assert self.process.is_alive(), f"it ended: {self._log.read_text()}"
            assert time.monotonic() < deadline, f"never happened: {self._log.read_text()}"
            time.sleep(0.01)

    def end(self) -> Ended:
        """Wait for the end."""
        self.process.join(PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            raise AssertionError(f"it does not end: {self._log.read_text()}")
        told = json.loads(self._termination.read_text()) if self._termination.exists() else {}
        return Ended(self.process.exitcode, told, self._log.read_text())


def run_batch(
    folder: Path, *arguments: str, environment: dict[str, str] | None = None, fault: Fault | None = None
) -> Ended:
    """Run to the end; `folder` gets the log and the termination message."""
    return Child(folder, *arguments, environment=environment, fault=fault).end()


def parts_beside(output: Path) -> list[str]:
    """Return the names of the parts that are whole."""
    folder = output.with_name(output.name + ".parts")
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if path.name[:1].isdigit() and path.suffix == "")


def rows_of_parts(names: Sequence[str]) -> int:
    """Return how many rows parts of these names have."""
    return sum(int(name.split("-")[1]) for name in names)
