"""A server that watches its ConfigMap and reports on its Lease: through kills and lost connections."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.runtime.kill_points import LEASE, Tokens
from tests.contract.runtime.revision_api import RevisionApi
from tests.contract.runtime.server_process import PATIENCE, Server
from tests.loopback import kubeconfig_for


@pytest.fixture
def api() -> Iterator[RevisionApi]:
    api = RevisionApi()
    yield api
    api.close()


class Pod:
    """What a pod of revisions has: a mounted configuration that stays as it was, and a way to the cluster."""

    def __init__(self, folder: Path, file: Path, port: int) -> None:
        self._file = file
        self._folder = folder
        self._environment = {"KUBECONFIG": str(kubeconfig_for(port, folder))}
        self._servers: list[Server] = []
        (folder / "serving.json").write_text(self.document(1))

    def document(self, revision: int) -> str:
        version = {"versionId": f"v{revision}", "path": str(self._file), "weight": 100}
        return json.dumps({"model": "model", "versions": [version], "revision": revision})

    def start(self, **environment: str) -> Server:
        server = Server(
            *("--serving-config", str(self._folder / "serving.json"), "--threads", "1"),
            *("--serving-config-map", "model-serving"),
            *("--pod-name", "pod-a", "--pod-namespace", "team-a", "--pod-uid", "1"),
            environment=self._environment | environment,
            wait=False,
        )
        self._servers.append(server)
        return server

    def end(self) -> None:
        for server in self._servers:
            server.close()


@pytest.fixture
def pod(api: RevisionApi, model: Callable[[str], Path], tmp_path: Path) -> Iterator[Pod]:
    pod = Pod(tmp_path, model("add"), api.port)
    api.put(pod.document(1))
    yield pod
    pod.end()


@pytest.mark.parametrize("step", LEASE)
def test_what_a_server_that_was_killed_did_not_report_the_next_one_does(
    pod: Pod, api: RevisionApi, tmp_path: Path, step: str
) -> None:
    """One write is one request, so a Lease is as before or as after; each server tells first what is live."""
    tokens = Tokens(tmp_path / "kill points")
    first = step == "before the Lease is made"
    if first:
        tokens.arm(step)
    server = pod.start(**tokens.environment())
    if not first:
        api.wait_for_lease("pod-a", PATIENCE, live_revision="1")
        tokens.arm(step)
        api.put(pod.document(2))
    assert server.wait() == -signal.SIGKILL
    assert not tokens.left()
    pod.start()
    api.wait_for_lease("pod-a", PATIENCE, live_revision="1" if first else "2")
    assert set(api.leases) == {"pod-a"}
