"""SIGKILL at every step of a change, in a worker and in the parent: nothing is lost and nothing is mixed.

Each revision has one version with an id of its own; the model behind it adds 1 or 100, by the parity of the
revision. So an answer tells of which version it is and whether that version really computed it.
"""

import hashlib
import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contract.runtime.kill_points import PARENT, REPLACING, WORKER, Tokens
from tests.contract.runtime.server_process import Server

X = np.zeros((1, 16), np.float32)
WORKERS = 2
CALLERS = 3
MOST_DEATHS = 6
"""After so many a server is replaced: it waits ever longer before it starts the next worker."""
MODELS = {"add": 1, "add-hundred": 100}
"""Even and odd revisions, and what they add."""

Model = Callable[[str], Path]


@dataclass
class Seen:
    """What callers saw; times of the monotonic clock in s."""

    answers: list[tuple[float, float, int]] = field(default_factory=list)
    """Sent, received, revision."""
    broken: list[tuple[float, str]] = field(default_factory=list)
    """When requests were sent that got no answer, and why."""
    wrong: list[str] = field(default_factory=list)


class World:
    """A server with two workers, its configuration, and the times at which revisions came to be."""

    def __init__(self, folder: Path, model: Model, *flags: str) -> None:
        self._flags = flags
        self.tokens = Tokens(folder / "kill points")
        self._path = folder / "serving.json"
        self._socket = folder / "http.sock"
        self._files = [model(name) for name in MODELS]
        self._digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in self._files]
        self.revision = 0
        self.written: dict[int, float] = {}
        self.live: dict[int, float] = {}
        self.write()
        self.server = self.started()

    def started(self, port: int = 0) -> Server:
        """Start a server, on the same addresses as the one before with its `port`."""
        return Server(
            *("--serving-config", str(self._path), "--workers", str(WORKERS), "--threads", "1"),
            *("--no-grpc", "--unix-socket", str(self._socket), *self._flags),
            port=port,
            environment=self.tokens.environment(),
        )

    def restart(self) -> None:
        self.server.close()
        self.server = self.started()

    def write(self) -> int:
        """Ask for the next revision, and return its number."""
        self.revision += 1
        parity = self.revision % 2
        version = {
            "versionId": f"r{self.revision}",
            "path": str(self._files[parity]),
            "sha256": self._digests[parity],
        }
        document = {"model": "model", "versions": [version], "revision": self.revision}
        unfinished = self._path.with_suffix(".new")
        unfinished.write_text(json.dumps(document))
        self.written[self.revision] = time.monotonic()
        unfinished.rename(self._path)
        return self.revision

    def wait_until_live(self, revision: int) -> None:
        words = f"revision {revision} of model is live"
        self.server.wait_for_log(lambda line: words in line["message"])
        self.live[revision] = time.monotonic()

    def log_of(self, words: str, after: int) -> None:
        self.server.wait_for_log(lambda line: words in line["message"], after)

    def answers(self, version_id: str) -> bool:
        """Return whether a version answers, if anybody listens."""
        try:
            return bool(self.server.infer(X).json["version_id"] == version_id)
        except (OSError, http.client.HTTPException):
            return False

    def everywhere(self) -> set[str]:
        """Return the versions that answer on so many connections that every worker has some."""
        return {self.server.infer(X).json["version_id"] for _ in range(12 * WORKERS)}

    @contextmanager
    def load(self) -> Iterator[Seen]:
        """Ask all the time, on new connections; then check that every answer was right."""
        seen, stop = Seen(), threading.Event()

        def ask() -> None:
            while not stop.is_set():
                sent = time.monotonic()
                try:
                    reply = self.server.infer(X)
                    document = reply.json
                except (OSError, http.client.HTTPException) as error:
                    seen.broken.append((sent, repr(error)))
                    time.sleep(0.005)
                    continue
                self._note(seen, sent, reply.status, document)

        callers = [threading.Thread(target=ask) for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        try:
            yield seen
        finally:
            stop.set()
            for caller in callers:
                caller.join()
        assert seen.answers
        assert not seen.wrong

    def _note(self, seen: Seen, sent: float, status: int, document: Any) -> None:
        received = time.monotonic()
        if status != 200:
            seen.broken.append((sent, f"{status} {document}"))
            return
        revision = int(document["version_id"][1:])
        added = [*MODELS.values()][revision % 2]
        # Nobody may have it before it was asked for, or when its successor was already live.
        if document["output"][0] != added or self.written[revision] > received:
            seen.wrong.append(f"{document}")
        if self.live.get(revision + 1, float("inf")) < sent:
            seen.wrong.append(f"{document}, but {revision + 1} was live when it was sent")
        seen.answers.append((sent, received, revision))


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("world"), model)
    yield world
    world.server.close()


@pytest.fixture
def world(lasting: World) -> Iterator[World]:
    if sum("ended by SIGKILL" in line["message"] for line in lasting.server.log) >= MOST_DEATHS:
        lasting.restart()
    yield lasting
    lasting.tokens.disarm()


@pytest.mark.parametrize("step", WORKER)
def test_a_worker_that_is_killed_is_replaced_and_the_revision_is_served(world: World, step: str) -> None:
    with world.load() as seen:
        after = len(world.server.log)
        world.tokens.arm(step)
        revision = world.write()
        world.log_of("ended by SIGKILL", after)
        dead = time.monotonic()
        world.wait_until_live(revision)
        world.log_of("serves again", after)
    assert not world.tokens.left()
    assert not [why for sent, why in seen.broken if sent > dead]
    assert world.everywhere() == {f"r{revision}"}
    assert len(world.server.workers()) == WORKERS


def test_all_workers_that_are_told_to_commit_are_replaced(world: World) -> None:
    after = len(world.server.log)
    world.tokens.arm("when it is told to commit", WORKERS)
    revision = world.write()
    for slot in range(WORKERS):
        world.log_of(f"worker {slot} serves again", after)
    world.wait_until_live(revision)
    assert world.everywhere() == {f"r{revision}"}
    assert not world.tokens.left()


def test_what_no_worker_survives_is_not_served_and_is_tried_again_by_one_alone(world: World) -> None:
    before, after = f"r{world.revision}", len(world.server.log)
    world.tokens.arm("before it is compared with what is served", WORKERS + 1)
    revision = world.write()
    told = f"cannot be served, {revision - 1} stays live: every worker that loaded version(s) r{revision}"
    world.log_of(told, after)
    world.server.wait_until(lambda: world.answers(before), "an answer of a new worker")
    world.wait_until_live(revision)
    assert not world.tokens.left()
    assert sum(told in line["message"] for line in world.server.log[after:]) >= 2
    assert world.everywhere() == {f"r{revision}"}


def test_a_server_ends_in_order_while_a_load_hangs(tmp_path: Path, model: Model) -> None:
    world = World(tmp_path, model)
    world.tokens.arm("before the session is made", WORKERS, hang=True)
    world.write()
    world.server.wait_until(lambda: not world.tokens.left(), "the load in both workers")
    assert world.everywhere() == {"r1"}
    assert world.server.stop() == 0
    world.server.close()


def test_a_load_that_hangs_is_given_up_and_the_next_revision_is_served(tmp_path: Path, model: Model) -> None:
    world = World(tmp_path, model, "--load-timeout", "1")
    workers = world.server.workers()
    with world.load() as seen:
        world.tokens.arm("before the session is made", hang=True)
        world.write()
        world.log_of("could not be loaded and run for the first time within 1 s", 0)
        assert world.everywhere() == {"r1"}
        world.wait_until_live(world.write())
        assert world.everywhere() == {"r3"}
    assert not seen.broken
    assert world.server.workers() == workers
    world.server.close()


@pytest.mark.parametrize("step", [*PARENT, *REPLACING])
def test_a_server_whose_parent_is_killed_starts_again_at_once(world: World, step: str) -> None:
    killed, workers = world.server, world.server.workers()
    with world.load() as seen:
        world.tokens.arm(step)
        if step in REPLACING:
            os.kill(workers[0], signal.SIGKILL)
        else:
            world.write()
        assert killed.wait() == -signal.SIGKILL
        restarted = world.started(killed.port)
        world.server = restarted
        serving = time.monotonic()
        killed.close()
        # What it began with it may have read before or after the last change: the newest comes in the end.
        wanted = f"r{world.revision}"
        restarted.wait_until(lambda: world.everywhere() == {wanted}, "the newest revision")
        world.live[world.revision] = time.monotonic()
    assert not [why for sent, why in seen.broken if sent > serving]
    for pid in workers:
        restarted.wait_until(lambda pid=pid: not _lives(pid), "the end of the killed server's workers")
    assert len(restarted.workers()) == WORKERS
    assert not world.tokens.left()


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
