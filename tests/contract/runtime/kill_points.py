"""Kills processes of a real server at a chosen step of a change. The server knows nothing of it.

`environment` makes every Python process of a server run `install` before anything else. It wraps the
functions in which the steps begin or end as soon as their modules are loaded. A test arms a step by laying
tokens into a folder: each process that gets to the step and takes a token kills itself by SIGKILL, or hangs.
"""

import importlib.abc
import importlib.machinery
import inspect
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple

_FOLDER = "KILL_POINTS"
_HANG = "hang"


class KillPoint(NamedTuple):
    """The moment before or after a call."""

    module: str
    """Below `mcp2026.runtime`."""
    function: str
    """`function` or `Class.method`."""
    when: Literal["before", "after"]
    argument: str = ""
    """Only calls count that have an argument of this type."""


WORKER = {
    "when it is told to prepare": KillPoint("process.change_steps", "ChangeSteps._prepare", "before"),
    "before the files are looked at": KillPoint("model.file_state", "files_of_model", "before"),
    "before the digest is compared": KillPoint("model.onnx_file", "check_digest", "before"),
    "before the session is made": KillPoint("model.sessions", "_session", "before"),
    "after the session is made": KillPoint("model.sessions", "_session", "after"),
    "before the first runs": KillPoint("model.probe", "probe", "before"),
    "before it is compared with what is served": KillPoint("model.compatibility", "differences", "before"),
    "when it has prepared": KillPoint("process.control", "send", "after", "Prepared"),
    "when it is told to commit": KillPoint("process.change_steps", "ChangeSteps._commit", "before"),
    "after the switch in the store": KillPoint("model.store", "ModelStore.put", "after"),
    "after the switch in the data plane": KillPoint("inference", "InferenceService.serve", "after"),
    "when it has committed": KillPoint("process.control", "send", "after", "Committed"),
    "when the retired version's memory is given back": KillPoint(
        "model.freed_memory", "give_back_freed_memory", "before"
    ),
}
"""Steps of a change in a worker, in the order in which they come."""

PARENT = {
    "after the file is read": KillPoint("revisions.newest", "Newest.put", "before"),
    "before there is room for its metrics": KillPoint("process.supervisor", "Supervisor._claim", "before"),
    "when one worker is told to prepare": KillPoint("process.workers", "Workers.tell", "after", "Prepare"),
    "when the first has prepared": KillPoint(
        "process.change_rounds", "ChangeRounds.voted", "before", "Prepared"
    ),
    "before the metrics of what goes are retired": KillPoint(
        "process.supervisor", "Supervisor._retire", "before"
    ),
    "after the decision": KillPoint("process.served", "Served.apply", "after"),
    "when one worker is told to commit": KillPoint("process.workers", "Workers.tell", "after", "Commit"),
    "when the first has committed": KillPoint(
        "process.change_rounds", "ChangeRounds.voted", "before", "Committed"
    ),
}
"""Steps of a change in the parent, in the order in which they come."""

REPLACING = {
    "before a new worker is told what to serve": KillPoint("process.control", "send", "before", "Start"),
    "before a new worker joins": KillPoint("process.change_rounds", "ChangeRounds.join", "before"),
    "after a new worker has joined": KillPoint("process.workers", "Workers._joined", "after"),
}
"""Steps in the parent by which a worker that ended is replaced."""

CONVERTER = {
    "after the optimized graph is made": KillPoint("model.ir.writing", "write_ir_file", "before"),
    "after the weights are written": KillPoint("model.ir.writing", "_write", "after"),
    "before the file gets its name": KillPoint("model.ir.writing", "_publish", "before"),
    "after the file has got its name": KillPoint("model.ir.writing", "_publish", "after"),
}
"""Steps of a conversion into our own format, in the order in which they come."""

FETCH = {
    "before the fetch begins": KillPoint("fetching.cache", "ModelCache.claim", "before"),
    "when its first bytes have arrived": KillPoint("fetching.transfer", "Transfer._take", "after"),
    "when all has arrived": KillPoint("fetching.cache", "Claim._publish", "before"),
    "when it has got its name": KillPoint("fetching.cache", "Claim._publish", "after"),
}
"""Steps in the parent by which a version that lies elsewhere is fetched, in the order in which they come."""

ARCHIVE = {
    "when it has drained": KillPoint("ending.server_end", "ServerEnd.finish", "before"),
    "before the log is packed": KillPoint("dataset.log_archive", "_compress", "before"),
    "after the log is packed": KillPoint("dataset.log_archive", "_compress", "after"),
    "after the log is archived": KillPoint("dataset.log_archive", "archive_logs", "after"),
    "before the end is reported": KillPoint("ending.server_end", "ServerEnd.tell", "before"),
}
"""Steps in the parent by which a stopped server archives its log, in the order in which they come."""

LEASE = {
    "before the Lease is written": KillPoint("revisions.lease_report", "LeaseReport._write", "before"),
    "before the Lease is made": KillPoint("revisions.lease_report", "_without_nothing", "before"),
    "after the Lease is written": KillPoint("revisions.lease_report", "LeaseReport._write", "after"),
}
"""Steps in the parent by which a pod reports what it serves."""

STEPS = WORKER | PARENT | REPLACING | CONVERTER | FETCH | ARCHIVE | LEASE


class Tokens:
    """Which steps are armed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder

    def environment(self) -> dict[str, str]:
        """Return variables for the server."""
        start = self._folder / "python"
        start.mkdir(exist_ok=True)
        (start / "sitecustomize.py").write_text(
            f"import runpy\nrunpy.run_path({str(Path(__file__))!r})['install']()\n"
        )
        path = os.pathsep.join([str(start), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {_FOLDER: str(self._folder), "PYTHONPATH": path}

    def arm(self, step: str, processes: int = 1, *, hang: bool = False) -> None:
        """Let so many processes die at the step, or `hang` there for ever."""
        assert step in STEPS
        for number in range(processes):
            (self._folder / f"{step}.{_HANG if hang else ''}{number}").touch()

    def left(self) -> list[str]:
        """Return what nobody has met."""
        return [path.name for path in self._folder.iterdir() if path.name != "python"]

    def disarm(self) -> None:
        """Let nobody die."""
        for name in self.left():
            (self._folder / name).unlink(missing_ok=True)


def _meet(folder: Path, step: str) -> None:
    for token in folder.glob(f"{step}.*"):
        try:
            token.unlink()
        except FileNotFoundError:
            continue  # another process took it
        while token.suffix.startswith(f".{_HANG}"):
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)


def _counts(point: KillPoint, arguments: Sequence[Any]) -> bool:
    return not point.argument or any(type(one).__name__ == point.argument for one in arguments)


def _wrapped(folder: Path, step: str, point: KillPoint, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if point.when == "before" and _counts(point, arguments):
            _meet(folder, step)
        answer = original(*arguments, **named)
        if point.when == "after" and _counts(point, arguments):
            _meet(folder, step)
        return answer

    if inspect.iscoroutinefunction(original):
        assert point.when == "before", "the end of a coroutine is not the end of its call"
    return call


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, module: str, folder: Path) -> None:
        self._loader = loader
        self._module = module
        self._folder = folder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for step, point in STEPS.items():
            if f"mcp2026.runtime.{point.module}" == self._module:
                *owners, name = point.function.split(".")
                owner: Any = module
                for one in owners:
                    owner = getattr(owner, one)
                setattr(owner, name, _wrapped(self._folder, step, point, getattr(owner, name)))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules = {f"mcp2026.runtime.{point.module}" for point in STEPS.values()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._modules:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((one for one in found if one is not None), None)
        if spec is not None:
            spec.loader = _Loader(spec.loader, fullname, self._folder)
        return spec


def install() -> None:
    """Wrap the steps in this process."""
    sys.meta_path.insert(0, _Finder(Path(os.environ[_FOLDER])))
