"""What an operator reads in the log of a server: where it listens, and what clients change."""

import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.runtime.server_process import PATIENCE, Server


@pytest.fixture
def controlled(tmp_path: Path, model) -> Iterator[Server]:
    version = tmp_path / "add" / "1"
    version.mkdir(parents=True)
    shutil.copy(model("add"), version / "model.onnx")
    server = Server("--model-repository", str(tmp_path), "--model-control", "explicit")
    yield server
    server.close()


def test_the_port_that_was_chosen_for_metrics_is_told(start) -> None:
    server = start("add", "--metrics-port", "0")
    told = server.wait_for_log(lambda line: "metrics_url" in line)
    assert told["metrics_url"] in told["message"]

    def ready() -> bool:  # the worker hears that it is ready when we do
        with urllib.request.urlopen(told["metrics_url"], timeout=PATIENCE) as answer:
            return b"mcp2026_workers_ready 1" in answer.read()

    server.wait_until(ready, "a worker is ready")


def test_models_that_clients_load_and_unload_are_told(controlled: Server, tmp_path: Path) -> None:
    path = "/v2/repository/models/add"
    for action, status, said in [
        ("load", 200, "loaded add: version(s) 1"),
        ("unload", 200, "unloaded add"),
        ("unload", 404, "a client's unload of add was refused: no model 'add' is served"),
    ]:
        assert controlled.request("POST", f"{path}/{action}").status == status
        assert controlled.wait_for_log(lambda line, said=said: line["message"] == said)
    (tmp_path / "add" / "1" / "model.onnx").write_bytes(b"nonsense")
    assert controlled.request("POST", f"{path}/load").status == 400
    refused = controlled.wait_for_log(lambda line: "load of add was refused: cannot load" in line["message"])
    assert "not an ONNX model" in refused["message"]
