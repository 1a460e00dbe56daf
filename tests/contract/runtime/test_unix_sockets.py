"""The same server on Unix sockets: HTTP/1.1, HTTP/2 and gRPC, from all workers, gone at the end."""

import http.client
import json
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc

from tests.contract.runtime.server_process import Server

ROWS = np.arange(16, dtype=np.float32).reshape(1, 16)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "http.sock", tmp_path / "grpc.sock"


@pytest.fixture
def server(start: Callable[..., Server], paths: tuple[Path, Path]) -> Server:
    http_path, grpc_path = map(str, paths)
    return start("add", "--workers", "2", "--unix-socket", http_path, "--grpc-unix-socket", grpc_path)


def test_http_and_grpc_answer_as_they_do_on_their_ports(
    server: Server, paths: tuple[Path, Path], direct: Callable[..., list[np.ndarray]]
) -> None:
    expected = direct("add", input=ROWS)[0]
    body = {"input": ROWS.ravel().tolist(), "shape": [1, 16]}
    connection = UnixConnection(paths[0])
    connection.request("POST", "/v1/infer", json.dumps(body))
    answer = json.loads(connection.getresponse().read())
    connection.close()
    np.testing.assert_array_equal(np.float32(answer["output"]).reshape(1, 16), expected)

    with tritonclient.grpc.InferenceServerClient(f"unix:{paths[1]}") as client:
        asked = tritonclient.grpc.InferInput("input", [1, 16], "FP32").set_data_from_numpy(ROWS)
        np.testing.assert_array_equal(client.infer("add", [asked]).as_numpy("output"), expected)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_http2_is_spoken_on_the_unix_socket(server: Server, paths: tuple[Path, Path]) -> None:
    command = ["curl", "-sS", "--http2-prior-knowledge", "--unix-socket", str(paths[0]), "http://x/healthz"]
    ended = subprocess.run([*command, "-w", "%{http_version}"], capture_output=True, text=True, check=True)
    assert ended.stdout == "ok\n2"


def test_the_paths_are_gone_when_the_server_is(server: Server, paths: tuple[Path, Path]) -> None:
    assert all(path.is_socket() for path in paths)
    server.process.terminate()
    assert server.process.wait() == 0
    assert not any(path.exists() for path in paths)


def test_a_server_that_was_killed_leaves_nothing_in_the_way(
    server: Server, paths: tuple[Path, Path], start: Callable[..., Server]
) -> None:
    workers = server.workers()
    server.process.kill()
    server.process.wait()
    assert paths[1].exists()
    server.wait_until(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "exit of the workers"
    )
    start("add", "--grpc-unix-socket", str(paths[1]))
    channel = grpc.insecure_channel(f"unix:{paths[1]}")
    grpc.channel_ready_future(channel).result(timeout=60)
    channel.close()
