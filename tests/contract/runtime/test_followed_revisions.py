"""A running server serves each newer revision of its configuration file in every worker."""

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contract.runtime.server_process import Server

X = np.zeros((1, 16), np.float32)
ANSWERS = {"v1": 1, "v2": 100}


class Configured:
    """A configuration file, written as an editor does it: another file, renamed."""

    def __init__(self, path: Path, files: dict[str, Path]) -> None:
        self.path = path
        self._files = files

    def write(self, revision: int, weights: dict[str, int], **fields: Any) -> None:
        versions = [
            {"versionId": version_id, "path": str(self._files[version_id]), "weight": weight}
            for version_id, weight in weights.items()
        ]
        document = {"model": "model", "versions": versions, "revision": revision, **fields}
        unfinished = self.path.with_suffix(".new")
        unfinished.write_text(json.dumps(document))
        unfinished.rename(self.path)


@pytest.fixture
def configured(model: Callable[[str], Path], tmp_path: Path) -> Configured:
    configured = Configured(
        tmp_path / "serving.json",
        {"v1": model("add"), "v2": model("add-hundred"), "v3": tmp_path / "v3.onnx"},
    )
    configured.write(1, {"v1": 100})
    return configured


@pytest.fixture
def server(configured: Configured) -> Iterator[Server]:
    server = Server("--serving-config", str(configured.path), "--threads", "1", "--workers", "2")
    yield server
    server.close()


def live(server: Server, revision: int) -> None:
    logged(server, f"revision {revision} of model is live")


def logged(server: Server, words: str) -> str:
    return str(server.wait_for_log(lambda line: words in line["message"])["message"])


def seen(server: Server, count: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    for _ in range(count):
        reply = server.infer(X)
        assert reply.status == 200
        assert reply.array()[0, 0] == ANSWERS[reply.json["version_id"]]
        seen[reply.json["version_id"]] += 1
    return seen


def test_versions_weights_and_limits_change_without_a_restart(server: Server, configured: Configured) -> None:
    workers = server.workers()
    configured.write(2, {"v1": 0, "v2": 100})
    live(server, 2)
    assert seen(server, 20) == {"v2": 20}
    configured.write(3, {"v2": 100}, batching={"maxBatchSize": 4})
    live(server, 3)
    assert server.infer(X, version_id="v1").status == 404
    described = server.request("GET", "/v1/models").json["models"][0]
    assert (described["revision"], described["max_batch_size"]) == (3, 4)
    assert server.workers() == workers


def test_a_revision_that_cannot_be_served_changes_nothing_and_is_tried_again(
    server: Server, configured: Configured, model: Callable[[str], Path]
) -> None:
    configured.write(2, {"v1": 50, "v3": 50})
    told = logged(server, "a revision cannot be served, 1 stays live")
    assert "v3.onnx" in told
    assert seen(server, 20) == {"v1": 20}
    (configured.path.parent / "v3.onnx").write_bytes(model("add-hundred").read_bytes())
    live(server, 2)
    assert server.infer(X, version_id="v3").array()[0, 0] == 100


def test_a_bad_file_is_told_and_the_next_good_one_is_served(server: Server, configured: Configured) -> None:
    configured.path.write_text("{")
    logged(server, "a revision cannot be served, 1 stays live")
    assert seen(server, 5) == {"v1": 5}
    configured.write(2, {"v1": 99}, unknown=1)
    logged(server, "unknown")
    configured.write(3, {"v2": 100})
    live(server, 3)


def test_an_older_revision_is_ignored(server: Server, configured: Configured) -> None:
    configured.write(5, {"v2": 100})
    live(server, 5)
    configured.write(4, {"v1": 100})
    configured.write(6, {"v1": 50, "v2": 50})
    live(server, 6)
    assert not any("revision 4" in line["message"] for line in server.log)


def test_a_worker_that_dies_comes_back_with_the_newest_revision(
    server: Server, configured: Configured
) -> None:
    configured.write(2, {"v2": 100})
    live(server, 2)
    os.kill(server.workers()[0], signal.SIGKILL)
    logged(server, "serves again")
    assert seen(server, 40) == {"v2": 40}


def test_callers_never_see_a_mixture(server: Server, configured: Configured) -> None:
    """Answers of v1 and v2 differ: each must be that of the version that it names, and none may fail."""
    stop = threading.Event()
    counts: list[Counter[str]] = []
    failures: list[str] = []

    def ask() -> None:
        count: Counter[str] = Counter()
        while not stop.is_set():
            reply = server.infer(X)
            if reply.status != 200 or reply.array()[0, 0] != ANSWERS[reply.json["version_id"]]:
                failures.append(f"{reply.status} {reply.json}")
                return
            count[reply.json["version_id"]] += 1
        counts.append(count)

    callers = [threading.Thread(target=ask) for _ in range(4)]
    for caller in callers:
        caller.start()
    try:
        for revision in range(2, 22):
            configured.write(revision, {"v1": 100} if revision % 2 else {"v2": 100})
            live(server, revision)
    finally:
        stop.set()
        for caller in callers:
            caller.join()
    assert not failures
    assert sum(counts, Counter()).keys() == {"v1", "v2"}
