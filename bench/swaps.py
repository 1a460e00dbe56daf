"""Hot swaps under load: is every answer that of a version that was live while its request was on the way?

Each swap serves another version, with an id of its own, from another copy of the model's file, and drops the
one before. What callers see is compared with the times at which the swaps were asked for and were live.

Windows with swaps and windows without take turns, equally long, so that whatever else the machine does meets
both. The p99 of each kind is the median over its windows.
"""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from bench.client.steady import Answers, steady_load
from bench.client.workload import OK, Stream
from bench.errors import BenchError
from bench.own_server import Setting
from bench.peers.mcp2026.peer import mcp2026
from bench.serving import running

LIVE_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.01
_BEGIN_S = 1.0
"""Unmeasured, before the first window."""
_AFTER_S = 0.75
"""Unmeasured, after swaps: the memory of the last version that was dropped is given back."""


@dataclass(frozen=True)
class Plan:
    """How many swaps there are and when."""

    swaps: int
    window: int
    """Swaps in a window."""
    every_s: float
    """From the begin of a swap to that of the next; if it takes longer to be live, the next begins then."""
    connections: int


@dataclass(frozen=True)
class Window:
    """What callers saw in one stretch of time; latencies in ms, rates in answers/s."""

    swapping: bool
    p50_ms: float
    p99_ms: float
    rate: float


@dataclass(frozen=True)
class Swaps:
    """What callers saw in all."""

    swaps: int
    seconds_per_swap: float
    """Mean distance between the begins of two swaps of one window."""
    answers: int
    errors: int
    wrong_version: int
    """Answers of versions that were not live at any time while their request was on the way."""
    settled_ms: float
    """Median from the moment when the file changed to that in which every worker served it."""
    windows: tuple[Window, ...]

    def medians(self, *, swapping: bool) -> Window:
        """Return the medians over the windows of one kind."""
        kind = [window for window in self.windows if window.swapping is swapping]
        return Window(
            swapping,
            median(window.p50_ms for window in kind),
            median(window.p99_ms for window in kind),
            median(window.rate for window in kind),
        )

    @property
    def p99_ratio(self) -> float:
        """p99 with swaps to that without."""
        return self.medians(swapping=True).p99_ms / self.medians(swapping=False).p99_ms

    @property
    def pairs(self) -> list[float]:
        """The same ratio for each window with swaps and the one that follows."""
        kinds = [[one.p99_ms for one in self.windows if one.swapping is kind] for kind in (True, False)]
        return [swapping / quiet for swapping, quiet in zip(*kinds, strict=True)]


@dataclass
class _Times:
    """When revisions were asked for and live, and when windows began and ended; monotonic clock, in s."""

    written: dict[int, float] = field(default_factory=lambda: {1: 0.0})
    live: dict[int, float] = field(default_factory=lambda: {1: 0.0})
    windows: list[tuple[bool, float, float]] = field(default_factory=list)


def hot_swaps(setting: Setting, plan: Plan, progress: Callable[[str], None]) -> Swaps:
    """Load one server in a closed loop; swap versions in every other window."""
    peer = mcp2026(tenants={"all": 1})
    with running(peer, setting.sample, setting.conditions, setting.logs) as server:
        folder = Path(server.task.folder)
        files = [folder / f"copy{number}.onnx" for number in range(2)]
        for file in files:
            shutil.copy(setting.sample.file, file)
        request = Stream("swaps", setting.exchange(server), plan.connections).request()
        seen, times = folder / "answers.npz", _Times()
        cores = setting.conditions.client_cores

        def swap() -> None:
            revision = len(times.written) + 1
            times.written[revision] = time.monotonic()
            _write(folder / "serving.json", server.task.model, revision, files[revision % 2])
            log.wait_for(revision)
            times.live[revision] = time.monotonic()

        with _Log(server.log) as log, steady_load(server.task.port, request, plan.connections, cores, seen):
            time.sleep(_BEGIN_S)
            for left in range(plan.swaps, 0, -plan.window):
                _two_windows(swap, min(left, plan.window), plan.every_s, times)
                progress(f"{len(times.live) - 1} of {plan.swaps} swaps")
        answers = Answers(seen)
    return _judge(answers, times)


def _two_windows(swap: Callable[[], None], swaps: int, every_s: float, times: _Times) -> None:
    began = time.monotonic()
    for _ in range(swaps):
        next_one = time.monotonic() + every_s
        swap()
        time.sleep(max(0.0, next_one - time.monotonic()))
    swapped = time.monotonic()
    time.sleep(_AFTER_S)
    rested = time.monotonic()
    time.sleep(swapped - began)
    times.windows += [(True, began, swapped), (False, rested, time.monotonic())]


def _write(path: Path, model: str, revision: int, file: Path) -> None:
    versions = [{"versionId": f"r{revision}", "path": str(file)}]
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps({"model": model, "versions": versions, "revision": revision}))
    unfinished.rename(path)


class _Log:
    """The server's log, of which only what is new is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open()
        self._read = ""

    def __enter__(self) -> "_Log":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def wait_for(self, revision: int) -> None:
        """Return when the log says that the revision is live."""
        words = f"revision {revision} of"
        deadline = time.monotonic() + LIVE_WITHIN_S
        while time.monotonic() < deadline:
            self._read += self._file.read()
            if words in self._read:
                self._read = ""
                return
            time.sleep(_LOOK_EVERY_S)
        raise BenchError(f"revision {revision} was not live in {LIVE_WITHIN_S:.0f} s; see {self._path}")


def _judge(answers: Answers, times: _Times) -> Swaps:
    good = answers.status == OK
    swapping = [end - start for kind, start, end in times.windows if kind]
    swaps = len(times.live) - 1
    return Swaps(
        swaps=swaps,
        seconds_per_swap=sum(swapping) / swaps,
        answers=len(answers),
        errors=int(np.count_nonzero(~good)),
        wrong_version=int(np.count_nonzero(good & ~_were_live(answers, times))),
        settled_ms=1e3 * median(times.live[number] - times.written[number] for number in range(2, swaps + 2)),
        windows=tuple(_window(answers, *window) for window in times.windows),
    )


def _window(answers: Answers, swapping: bool, start: float, end: float) -> Window:
    """Return what became of the requests that were sent in this stretch of time."""
    within = (start <= answers.sent) & (answers.sent < end)
    if not within.any():
        raise BenchError("no answer came in one of the windows; make them longer: --window, --every")
    latencies = 1e3 * (answers.received - answers.sent)[within]
    p50, p99 = np.percentile(latencies, [50, 99])
    return Window(swapping, float(p50), float(p99), len(latencies) / (end - start))


def _were_live(answers: Answers, times: _Times) -> "np.typing.NDArray[np.bool_]":
    """Say of each answer whether its version may have been live while the request was on the way.

    It was not if nobody had asked for it before the answer came, or if the next one was live in every worker
    before the request was sent.
    """
    newest = max(times.live)
    written, next_live = np.full(newest + 1, np.inf), np.full(newest + 1, np.inf)
    for number in times.live:
        written[number] = times.written[number]
        next_live[number] = times.live.get(number + 1, np.inf)
    known = np.where((answers.revision >= 1) & (answers.revision <= newest), answers.revision, 0)
    were: np.typing.NDArray[np.bool_] = (written[known] <= answers.received) & (
        next_live[known] >= answers.sent
    )
    return were
