"""A worker that died is replaced, whatever its clients do to the models meanwhile."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.contract.runtime.open_inference_server import echo_model
from tests.contract.runtime.server_process import PATIENCE, Server

Start = Callable[..., Server]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a server for two models, of which it loads one; all end with the test."""
    for name in ("fp32", "other"):
        echo_model(tmp_path, name, "FP32", None, None)
    with ExitStack() as servers:

        def start(*arguments: str, wait: bool = True) -> Server:
            repository = ("--model-repository", str(tmp_path), "--model-control", "explicit")
            server = Server(*repository, "--load-model", "other", "--threads", "1", *arguments, wait=wait)
            servers.callback(server.close)
            return server

        yield start


def test_a_replaced_worker_joins_while_the_models_change_all_the_time(serving: Start) -> None:
    server = serving("--workers", "2")
    joined = threading.Event()

    def change() -> None:
        while not joined.is_set():
            for verb in ("load", "unload"):
                with suppress(ConnectionError):  # it was the worker that is killed
                    server.request("POST", f"/v2/repository/models/fp32/{verb}")

    with ThreadPoolExecutor() as pool:
        changes = pool.submit(change)
        try:
            os.kill(server.workers()[0], signal.SIGKILL)
            server.wait_for_log(lambda line: "serves again" in line["message"])
        finally:
            joined.set()
        changes.result(PATIENCE)
    assert server.metric("mcp2026_worker_restarts_total") == 1
    assert server.request("POST", "/v2/repository/models/fp32/load").status == 200
    for _ in range(20):  # of both workers
        for name in ("fp32", "other"):
            assert server.request("GET", f"/v2/models/{name}/ready").status == 200


def test_a_load_that_is_asked_for_while_the_server_starts(serving: Start) -> None:
    server = serving(wait=False)
    server.port = server.wait_for_log(lambda line: "listening" in line)["listening"]
    assert server.request("POST", "/v2/repository/models/fp32/load").status == 200
    server.wait_for_log(lambda line: "url" in line)
    assert server.request("GET", "/readyz").status == 200
    for name in ("fp32", "other"):
        assert server.request("GET", f"/v2/models/{name}/ready").status == 200
