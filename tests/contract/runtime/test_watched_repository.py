"""A server that watches its repository: what is copied in is served by every worker, what goes is not."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from tests.contract.runtime.server_process import Server, run_server

WORKERS = 2
ENOUGH = 12
"""Connections after which every worker has surely answered: the kernel spreads them."""
QUIET = 0.3
ROWS = np.arange(32, dtype=np.float32).reshape(2, 16)
ADDED = {"add": 1, "add-hundred": 100}
Model = Callable[[str], Path]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture
def serve(repository: Path) -> Iterator[Callable[..., Server]]:
    with ExitStack() as servers:

        def start(*arguments: str, workers: int = WORKERS, poll: float = 60.0) -> Server:
            made = Server(
                *("--model-repository", str(repository), "--model-control", "poll", "--threads", "1"),
                *("--workers", str(workers), "--repository-quiet-seconds", str(QUIET)),
                *("--repository-poll-seconds", str(poll), *arguments),
            )
            servers.callback(made.close)
            return made

        yield start


def put(file: Path, version: Path) -> None:
    """Copy a model into a version's folder."""
    version.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, version / "model.onnx")


def client(server: Server) -> Any:
    return tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.port}")


def added(server: Server, model: str = "m", version: str = "") -> float:
    """Return what the model adds to its input."""
    asked = tritonclient.http.InferInput("input", [2, 16], "FP32").set_data_from_numpy(ROWS)
    answer = client(server).infer(model, [asked], model_version=version).as_numpy("output")
    return float((answer - ROWS)[0, 0])


def refusal(server: Server, path: str, **body: Any) -> str:
    """Return what a request is refused with. (A tritonclient may not be collected by another thread.)"""
    reply = server.request("POST", f"/v2/{path}", body)
    assert reply.status >= 400
    return str(reply.json["error"])


def refused_inference(server: Server, model: str) -> str:
    tensor = {"name": "input", "shape": [2, 16], "datatype": "FP32", "data": ROWS.ravel().tolist()}
    return refusal(server, f"models/{model}/infer", inputs=[tensor])


def index(server: Server) -> list[tuple[str, str, str]]:
    listed = client(server).get_model_repository_index()
    return [(one["name"], one.get("version", ""), one["state"]) for one in listed]


def said(server: Server, words: str, after: int = 0) -> str:
    return str(server.wait_for_log(lambda line: words in line["message"], after)["message"])


def everywhere(server: Server, expected: float, version: str = "") -> None:
    assert {added(server, version=version) for _ in range(ENOUGH)} == {expected}


def test_models_come_change_and_go(serve: Callable[..., Server], repository: Path, model: Model) -> None:
    put(model("mlp"), repository / "first" / "1")
    server = serve()
    assert index(server) == [("first", "1", "READY")]
    put(model("add"), repository / "m" / "1")
    said(server, "loaded m ")
    everywhere(server, 1)

    lines = len(server.log)
    put(model("add-hundred"), repository / "m" / "2")
    said(server, "loaded m as the repository has it: version(s) 2", lines)
    everywhere(server, 100)
    assert index(server)[1:] == [("m", "2", "READY")]

    lines = len(server.log)
    (repository / "m" / "config.pbtxt").write_text("version_policy {all {}}")
    said(server, "version(s) 1, 2", lines)
    everywhere(server, 1, "1")
    everywhere(server, 100)

    lines = len(server.log)
    shutil.rmtree(repository / "m" / "2")
    said(server, "version(s) 1", lines)
    everywhere(server, 1)
    assert "no version '2'" in refused_inference(server, "m/versions/2")

    lines = len(server.log)
    shutil.rmtree(repository / "m")
    said(server, "unloaded m", lines)
    assert [client(server).is_model_ready("m") for _ in range(ENOUGH)] == [False] * ENOUGH
    assert index(server) == [("first", "1", "READY")]
    assert "not allowed" in refusal(server, "repository/models/first/load")


def test_specific_versions_hold_while_others_come(
    serve: Callable[..., Server], repository: Path, model: Model
) -> None:
    put(model("add"), repository / "m" / "1")
    (repository / "m" / "config.pbtxt").write_text("version_policy {specific {versions: [1]}}")
    server = serve()
    lines = len(server.log)
    put(model("add-hundred"), repository / "m" / "2")
    said(server, "version(s) 1", lines)
    everywhere(server, 1)
    lines = len(server.log)
    (repository / "m" / "config.pbtxt").write_text("version_policy {specific {versions: [2]}}")
    said(server, "version(s) 2", lines)
    everywhere(server, 100)
    lines = len(server.log)
    (repository / "m" / "config.pbtxt").write_text("version_policy {specific {versions: [2, 3]}}")
    assert "[3], which are not there" in said(server, "cannot be served", lines)
    everywhere(server, 100)


def test_a_copy_that_takes_its_time_is_loaded_when_it_is_whole(
    serve: Callable[..., Server], repository: Path, model: Model
) -> None:
    put(model("add"), repository / "m" / "1")
    server = serve()
    lines = len(server.log)
    content = model("add-hundred").read_bytes()
    (repository / "m" / "2").mkdir()
    with (repository / "m" / "2" / "model.onnx").open("wb") as file:
        for piece in range(8):
            file.write(content[len(content) * piece // 8 : len(content) * (piece + 1) // 8])
            file.flush()
            assert added(server) == 1
            time.sleep(QUIET / 3)  # the pauses of a slow copy: they are what is tested
    said(server, "version(s) 2", lines)
    everywhere(server, 100)
    assert not any("cannot be served" in line["message"] for line in server.log)


def test_a_broken_version_is_named_and_its_repair_is_served(
    serve: Callable[..., Server], repository: Path, model: Model
) -> None:
    put(model("add"), repository / "m" / "1")
    server = serve()
    lines = len(server.log)
    put(Path(__file__), repository / "m" / "2")
    assert "version(s) 1 stay as they are" in said(server, "cannot be served", lines)
    everywhere(server, 1)
    server.wait_until(lambda: ("m", "2", "UNAVAILABLE") in index(server), "the index tells it")
    assert index(server) == [("m", "1", "READY"), ("m", "2", "UNAVAILABLE")]
    over_grpc = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    (broken,) = [one for one in over_grpc.get_model_repository_index().models if one.state != "READY"]
    assert "not an ONNX model" in broken.reason
    # A worker that is started later knows of it too.
    lines = len(server.log)
    os.kill(server.workers()[0], 9)
    said(server, "serves again", lines)
    assert {str(index(server)) for _ in range(ENOUGH)} == {str(index(server))}

    lines = len(server.log)
    put(model("add-hundred"), repository / "m" / "2")
    said(server, "version(s) 2", lines)
    everywhere(server, 100)
    assert index(server) == [("m", "2", "READY")]


def test_a_broken_configuration_leaves_all_as_it_was(
    serve: Callable[..., Server], repository: Path, model: Model
) -> None:
    put(model("add"), repository / "m" / "1")
    server = serve()
    lines = len(server.log)
    (repository / "m" / "config.pbtxt").write_text("sequence_batching {}")
    assert "sequence_batching" in said(server, "cannot be served", lines)
    everywhere(server, 1)
    server.wait_until(lambda: ("m", "", "UNAVAILABLE") in index(server), "the index tells it")
    lines = len(server.log)
    (repository / "m" / "config.pbtxt").unlink()
    said(server, "loaded m ", lines)
    assert index(server) == [("m", "1", "READY")]


def test_a_broken_model_keeps_no_server_from_starting(
    serve: Callable[..., Server], repository: Path, model: Model
) -> None:
    put(model("add"), repository / "m" / "1")
    put(Path(__file__), repository / "broken" / "1")
    server = serve()
    everywhere(server, 1)
    assert index(server) == [("broken", "1", "UNAVAILABLE"), ("m", "1", "READY")]
    assert "not an ONNX model" in refused_inference(server, "broken")
    lines = len(server.log)
    shutil.rmtree(repository / "broken")
    put(model("add"), repository / "other" / "1")
    said(server, "loaded other", lines)
    server.wait_until(
        lambda: index(server) == [("m", "1", "READY"), ("other", "1", "READY")], "it is forgotten"
    )


@pytest.mark.parametrize("poll", [60.0, 0.2], ids=["by events", "by looks"])
def test_a_link_that_moves_is_a_change(
    serve: Callable[..., Server], repository: Path, model: Model, tmp_path: Path, poll: float
) -> None:
    """As the kubelet changes a volume: all files by one rename. Outside of the watched folder is no event."""
    place = repository if poll > 1 else tmp_path / "elsewhere"
    for number, name in enumerate(ADDED):
        put(model(name), place / f"..{number}" / "m" / "1")
    (place / "..data").symlink_to("..0")
    (repository / "m").symlink_to(place / "..data" / "m")
    server = serve(workers=1, poll=poll)
    assert added(server) == 1
    lines = len(server.log)
    (place / "..next").symlink_to("..1")
    (place / "..next").rename(place / "..data")
    said(server, "loaded m ", lines)
    assert added(server) == 100


def test_a_folder_that_is_swapped_by_renames_is_never_unloaded(
    serve: Callable[..., Server], repository: Path, model: Model, tmp_path: Path
) -> None:
    put(model("add"), repository / "m" / "1")
    put(model("add-hundred"), tmp_path / "new" / "1")
    server = serve()
    stop = threading.Event()
    seen: set[float] = set()
    failures: list[Exception] = []

    def ask() -> None:
        try:
            while not stop.is_set():
                seen.add(float((server.infer(ROWS, model="m").array() - ROWS)[0, 0]))
        except Exception as error:
            failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    lines = len(server.log)
    (repository / "m").rename(tmp_path / "old")
    (tmp_path / "new").rename(repository / "m")
    said(server, "loaded m ", lines)
    everywhere(server, 100)
    stop.set()
    asking.join()
    assert failures == []
    assert seen <= {1.0, 100.0}
    assert not any("unloaded" in line["message"] for line in server.log)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--model-path", "m.onnx"], "poll needs a repository", id="no repository"),
        pytest.param(["--model-repository", "/none"], "no such folder", id="no such folder"),
    ],
)
def test_a_start_that_cannot_be_ends_in_one_sentence(arguments: list[str], words: str) -> None:
    ended = run_server(*arguments, "--model-control", "poll", "--port", "0")
    assert ended.returncode in (1, 2)
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
