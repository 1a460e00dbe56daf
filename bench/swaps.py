"""Hot swaps under load: is every answer that of a version that was live while its request was on the way?

Each swap serves another version, with an id of its own, from another copy of the model's file, and drops the
one before. What callers see is compared with the times at which the swaps were asked for and were live.
"""

import json
import re
import select
import shutil
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from bench.client.workload import OK, Stream
from bench.errors import BenchError
from bench.own_server import Setting
from bench.peers.mcp2026.peer import mcp2026
from bench.serving import running

LIVE_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.01
_VERSION = re.compile(rb'"version_id":"r?(\d+)"')
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True)
class Answer:
    """One answer: times of the monotonic clock in s, the status, and the number of the version."""

    sent: float
    received: float
    status: int
    revision: int


@dataclass(frozen=True)
class Swaps:
    """What callers saw; times in ms, rates in answers/s."""

    swaps: int
    answers: int
    errors: int
    wrong_version: int
    """Answers of versions that were not live at any time while their request was on the way."""
    settled_ms: float
    """Median from the moment when the file changed to that in which every worker served it."""
    quiet_p99_ms: float
    swapping_p99_ms: float
    quiet_rate: float
    swapping_rate: float

    @property
    def p99_ratio(self) -> float:
        """p99 with swaps to that without."""
        return self.swapping_p99_ms / self.quiet_p99_ms


def hot_swaps(setting: Setting, swaps: int, rounds: int, connections: int) -> Swaps:
    """Load one server in a closed loop; in each of `rounds` first leave it alone, then swap, as long each."""
    peer = mcp2026(tenants={"all": 1})
    with running(peer, setting.sample, setting.conditions, setting.logs) as server:
        folder = Path(server.task.folder)
        files = [folder / f"copy{number}.onnx" for number in range(2)]
        for file in files:
            shutil.copy(setting.sample.file, file)
        request = Stream("swaps", setting.exchange(server), connections).request()
        written, live = {1: 0.0}, {1: 0.0}
        revision = 1
        phases: list[tuple[bool, float, float]] = []
        with _load(server.task.port, request, connections) as answers:
            time.sleep(0.5)
            for _ in range(rounds):
                began = time.monotonic()
                for _ in range(swaps // rounds):
                    revision += 1
                    written[revision] = time.monotonic()
                    _write(folder / "serving.json", server.task.model, revision, files[revision % 2])
                    live[revision] = _wait_for(server.log, revision)
                swapped = time.monotonic()
                phases.append((True, began, swapped))
                time.sleep(swapped - began)
                phases.append((False, swapped, time.monotonic()))
    return _judge(list(answers), phases, written, live)


def _write(path: Path, model: str, revision: int, file: Path) -> None:
    versions = [{"versionId": f"r{revision}", "path": str(file)}]
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps({"model": model, "versions": versions, "revision": revision}))
    unfinished.rename(path)


def _wait_for(log: Path, revision: int) -> float:
    """Return when the log was seen to say that the revision is live."""
    words = f"revision {revision} of"
    deadline = time.monotonic() + LIVE_WITHIN_S
    while time.monotonic() < deadline:
        if words in log.read_text():
            return time.monotonic()
        time.sleep(_LOOK_EVERY_S)
    raise BenchError(f"revision {revision} was not live in {LIVE_WITHIN_S:.0f} s; see {log}")


@contextmanager
def _load(port: int, request: bytes, connections: int) -> Iterator[deque[Answer]]:
    """Ask over and over, on so many connections at once, for the length of the block."""
    answers: deque[Answer] = deque()
    stop = threading.Event()
    thread = threading.Thread(target=_ask, args=(port, request, connections, answers, stop))
    thread.start()
    try:
        yield answers
    finally:
        stop.set()
        thread.join()


class _Caller:
    """One connection with one request on the way."""

    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self._received = b""
        self._sent = 0.0

    def ask(self) -> None:
        """Send the request."""
        self._received = b""
        self._sent = time.monotonic()
        self.socket.sendall(self._request)

    def read(self) -> Answer | None:
        """Read what has come; return a whole answer."""
        data = self.socket.recv(1 << 16)
        if not data:
            return Answer(self._sent, time.monotonic(), 0, 0)
        self._received += data
        end = self._received.find(_HEAD_END)
        length = _LENGTH.search(self._received, 0, end) if end >= 0 else None
        if length is None or len(self._received) < end + len(_HEAD_END) + int(length[1]):
            return None
        version = _VERSION.search(self._received, end)
        revision = int(version[1]) if version else 0
        return Answer(self._sent, time.monotonic(), int(self._received[9:12]), revision)


def _ask(port: int, request: bytes, connections: int, answers: deque[Answer], stop: threading.Event) -> None:
    callers = [_Caller(port, request) for _ in range(connections)]
    by_descriptor = {caller.socket.fileno(): caller for caller in callers}
    poll = select.epoll()
    for descriptor, caller in by_descriptor.items():
        poll.register(descriptor, select.EPOLLIN)
        caller.ask()
    while not stop.is_set():
        for descriptor, _ in poll.poll(0.1):
            answer = by_descriptor[descriptor].read()
            if answer is None:
                continue
            answers.append(answer)
            if answer.status:
                by_descriptor[descriptor].ask()
            else:
                poll.unregister(descriptor)
    for caller in callers:
        caller.socket.close()
    poll.close()


def _judge(
    answers: list[Answer],
    phases: list[tuple[bool, float, float]],
    written: dict[int, float],
    live: dict[int, float],
) -> Swaps:
    quiet, swapping = (_within(answers, phases, wanted) for wanted in (False, True))
    if not quiet or not swapping:
        raise BenchError("no answer came in one of the phases; load longer: --swaps, --rounds")
    good = [answer for answer in answers if answer.status == OK]
    newest = max(written)
    seconds = {
        wanted: sum(end - start for kind, start, end in phases if kind is wanted) for wanted in (True, False)
    }
    return Swaps(
        swaps=newest - 1,
        answers=len(answers),
        errors=len(answers) - len(good),
        wrong_version=sum(not _was_live(answer, written, live) for answer in good),
        settled_ms=1e3 * median(live[number] - written[number] for number in written if number > 1),
        quiet_p99_ms=float(np.percentile(quiet, 99)),
        swapping_p99_ms=float(np.percentile(swapping, 99)),
        quiet_rate=len(quiet) / seconds[False],
        swapping_rate=len(swapping) / seconds[True],
    )


def _within(answers: list[Answer], phases: list[tuple[bool, float, float]], wanted: bool) -> list[float]:
    """Return the latencies in ms of the requests that were sent in phases of one kind."""
    return [
        1e3 * (answer.received - answer.sent)
        for answer in answers
        if any(kind is wanted and start <= answer.sent < end for kind, start, end in phases)
    ]


def _was_live(answer: Answer, written: dict[int, float], live: dict[int, float]) -> bool:
    """Say whether the version may have been live while the request was on the way.

    It was not if nobody had asked for it before the answer came, or if the next one was live in every worker
    before the request was sent.
    """
    if written.get(answer.revision, float("inf")) > answer.received:
        return False
    return live.get(answer.revision + 1, float("inf")) >= answer.sent
