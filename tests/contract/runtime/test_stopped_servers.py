"""A server whose model is stopped: it drains, archives, reports, and the next one in its place waits."""

import gzip
import hashlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mcp2026.runtime.process.supervisor import SAME_SIGNAL_SECONDS
from tests.contract.runtime.server_process import Reply, Server

X = np.zeros((1, 16), np.float32)
CALLERS = 4
WAITING = {"maxBatchSize": 128, "minBatchSize": 128, "maxDelayMs": 60_000}
"""So that requests wait for more of them until the drain has them run."""


class Pod:
    """What lasts as long as a pod: its folder, its configuration, its termination message."""

    def __init__(self, folder: Path, file: Path) -> None:
        self.folder = folder
        self._file = file
        self.archive = folder / "archive"
        self._servers: list[Server] = []
        self.configure(1)

    def configure(self, revision: int, **more: Any) -> None:
        """Write the configuration as the kubelet does: another file, renamed."""
        version = {"versionId": "v1", "path": str(self._file), "weight": 100}
        document = {"model": "model", "versions": [version], "revision": revision, **more}
        unfinished = self.folder / "serving.new"
        unfinished.write_text(json.dumps(document))
        unfinished.rename(self.folder / "serving.json")

    def start(
        self, *more: str, archive: str | None = None, environment: dict[str, str] | None = None
    ) -> Server:
        """Start the container: a server, with what the pod has."""
        server = Server(
            *("--serving-config", str(self.folder / "serving.json"), "--threads", "1"),
            *("--ending-directory", str(self.folder / "ending"), "--pod-name", "pod-a"),
            *("--termination-message", str(self.folder / "termination")),
            *("--log-archive", archive or str(self.archive), *more),
            wait=False,
            environment=environment,
        )
        self._servers.append(server)
        return server

    def serve(
        self, *more: str, archive: str | None = None, environment: dict[str, str] | None = None
    ) -> Server:
        server = self.start(*more, archive=archive, environment=environment)
        server.port = int(server.wait_for_log(lambda line: "url" in line)["url"].rsplit(":", 1)[1])
        return server

    def report(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads((self.folder / "termination").read_text())
        return said

    def archived(self) -> list[str]:
        return gzip.decompress((self.archive / "pod-a.log.gz").read_bytes()).decode().splitlines()

    def end(self) -> None:
        for server in self._servers:
            server.close()


@pytest.fixture
def pod(model: Callable[[str], Path], tmp_path: Path) -> Iterator[Pod]:
    pod = Pod(tmp_path, model("add"))
    yield pod
    pod.end()


def ask_at_once(server: Server) -> tuple[list[threading.Thread], list[Reply]]:
    """Have requests in flight, and return their threads and where the answers will be."""
    replies: list[Reply] = []
    threads = [threading.Thread(target=lambda: replies.append(server.infer(X))) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    server.wait_until(lambda: server.metric("mcp2026_pending_requests") == CALLERS, "requests in flight")
    return threads, replies


def test_what_is_in_flight_is_answered_the_log_is_archived_and_the_code_is_0(pod: Pod) -> None:
    pod.configure(1, batching=WAITING)
    server = pod.serve("--workers", "2")
    threads, replies = ask_at_once(server)
    pod.configure(7, stopped=True)
    for thread in threads:
        thread.join()
    assert [reply.status for reply in replies] == [200] * CALLERS
    assert server.wait() == 0
    said = pod.report()
    digest = hashlib.sha256((pod.archive / "pod-a.log.gz").read_bytes()).hexdigest()
    assert said == {
        "exit_code": 0,
        "reason": "Stopped",
        "message": f"{CALLERS} requests were answered after the stop",
        "revision": 7,
        "served": True,
        "drained": CALLERS,
        "archive": str(pod.archive / "pod-a.log.gz"),
        "archive_sha256": digest,
        "archive_error": None,
    }
    lines = [json.loads(line)["message"] for line in pod.archived()]
    assert lines[0].startswith("loading model")
    assert "revision 7 says that the model is stopped" in lines
    assert lines[-1] == f"stopped: {CALLERS} requests were answered after the stop"
    assert [path.name for path in pod.archive.iterdir()] == ["pod-a.log.gz"]


def test_what_it_logs_is_still_on_standard_error(pod: Pod) -> None:
    server = pod.serve()
    pod.configure(2, stopped=True)
    server.wait_for_log(lambda line: line["message"] == "the end is reported: Stopped, exit code 0")
    assert server.wait() == 0


def test_the_next_one_waits_live_and_not_ready_though_its_configuration_is_old(pod: Pod) -> None:
    first = pod.serve()
    pod.configure(2, stopped=True)
    assert first.wait() == 0
    pod.configure(1)
    (pod.folder / "termination").unlink()
    parked = pod.start()
    parked.wait_for_log(lambda line: "live and not ready" in line["message"])
    assert not parked.workers()
    assert parked.stop() == 0
    assert not (pod.folder / "termination").exists()


def test_it_answers_the_probes_while_it_waits(pod: Pod) -> None:
    first = pod.serve()
    pod.configure(2, stopped=True)
    assert first.wait() == 0
    parked = pod.serve()
    assert parked.request("GET", "/healthz").status == 200
    assert parked.request("GET", "/readyz").status == 503
    assert parked.infer(X).status == 404
    assert parked.stop() == 0


def test_one_that_waited_and_was_killed_is_followed_by_the_same_report(pod: Pod) -> None:
    first = pod.serve()
    pod.configure(2, stopped=True)
    assert first.wait() == 0
    said = pod.report()
    parked = pod.start()
    parked.wait_for_log(lambda line: "live and not ready" in line["message"])
    parked.process.send_signal(signal.SIGKILL)
    parked.wait()
    (pod.folder / "termination").unlink()
    assert pod.start().wait() == 0
    assert pod.report() == said
    pod.start().wait_for_log(lambda line: "live and not ready" in line["message"])


def test_one_that_starts_for_a_stopped_model_loads_nothing_and_says_so(pod: Pod) -> None:
    pod.configure(3, stopped=True)
    server = pod.start()
    assert server.wait() == 0
    said = pod.report()
    assert (said["exit_code"], said["served"], said["drained"], said["revision"]) == (0, False, 0, 3)
    assert not any("loading" in line["message"] for line in server.log)
    assert len(said["archive_sha256"]) == 64


def test_one_that_was_killed_in_its_drain_is_reported_by_the_next_one(pod: Pod) -> None:
    server = pod.serve("--lame-duck-seconds", "60")
    pod.configure(2, stopped=True)
    server.wait_for_log(lambda line: "exit begins" in line["message"])
    server.process.send_signal(signal.SIGKILL)
    server.wait()
    assert pod.start().wait() == 1
    said = pod.report()
    assert (said["exit_code"], said["reason"], said["served"]) == (1, "DrainIncomplete", True)
    assert "killed while it drained" in said["message"]
    assert any("loading model" in line for line in pod.archived())


def test_a_damaged_record_loses_neither_the_log_nor_the_report(pod: Pod) -> None:
    first = pod.serve()
    pod.configure(2, stopped=True)
    assert first.wait() == 0
    before = pod.archived()
    (pod.folder / "ending" / "ending.json").write_bytes(b"\0" * 100)
    pod.configure(1)
    second = pod.start()
    assert second.wait() == 1
    assert any("ending.json is damaged" in line["message"] for line in second.log)
    assert not any("loading" in line["message"] for line in second.log)
    assert "record is damaged" in pod.report()["message"]
    assert pod.archived()[: len(before)] == before
    pod.start().wait_for_log(lambda line: "live and not ready" in line["message"])


def test_a_place_that_cannot_be_written_has_its_own_code(
    pod: Pod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    server = pod.serve(archive=str(tmp_path / "file" / "folder"))
    pod.configure(2, stopped=True)
    server.wait_for_log(lambda line: "was not archived" in line["message"])
    (tmp_path / "file").unlink()  # the place comes back, and another attempt finds it
    assert server.wait() == 0
    assert pod.report()["archive_sha256"]


def test_a_sigterm_while_it_drains_changes_nothing_and_a_second_one_cuts_it_short(pod: Pod) -> None:
    server = pod.serve("--lame-duck-seconds", "600")
    pod.configure(2, stopped=True)
    server.wait_for_log(lambda line: "exit begins" in line["message"])
    server.process.send_signal(signal.SIGTERM)
    assert server.request("GET", "/healthz").status == 200
    server.process.send_signal(signal.SIGTERM)  # as `timeout` does, within 0.2 s: the same one
    assert server.infer(X).status == 200
    time.sleep(2 * SAME_SIGNAL_SECONDS)  # nothing tells that a signal is not taken for the same one any more
    assert server.stop() == 128 + signal.SIGTERM
    assert pod.report()["reason"] == "DrainIncomplete"


def test_a_sigterm_alone_archives_and_reports_nothing(pod: Pod) -> None:
    server = pod.serve()
    assert server.stop() == 0
    assert not (pod.folder / "termination").exists()
    assert not pod.archive.exists()
    assert pod.serve().stop() == 0
    assert [path.name for path in (pod.folder / "ending").iterdir()] == ["server.log"]
