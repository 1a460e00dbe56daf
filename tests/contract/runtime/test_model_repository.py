"""A server with a model repository and several workers: what one client changes, all workers have changed."""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils.shared_memory as client_memory
from onnx import TensorProto, helper, save_model
from onnx.numpy_helper import from_array
from tritonclient.utils import InferenceServerException

from tests.contract.runtime.server_process import Server, run_server

WORKERS = 3
ENOUGH = 24
"""Connections after which every worker has surely answered: the kernel spreads them."""


@pytest.fixture
def repository(tmp_path: Path, model: Callable[[str], Path]) -> Path:
    """A repository with a model and a second one that nothing loads at the start."""
    for name in ("add", "mlp"):
        folder = tmp_path / "models" / name / "1"
        folder.mkdir(parents=True)
        shutil.copy(model(name), folder / "model.onnx")
    return tmp_path / "models"


@pytest.fixture
def serve(repository: Path) -> Iterator[Callable[..., Server]]:
    with ExitStack() as servers:

        def start(*arguments: str) -> Server:
            made = Server(
                "--model-repository", str(repository), "--workers", str(WORKERS), "--threads", "1", *arguments
            )
            servers.callback(made.close)
            return made

        yield start


def http(server: Server) -> Any:
    return tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.port}")


def grpc(server: Server) -> Any:
    # gRPC shares connections between channels of one process unless they differ in their options.
    return tritonclient.grpc.InferenceServerClient(
        f"127.0.0.1:{server.grpc_port}", channel_args=[("grpc.use_local_subchannel_pool", 1)]
    )


def infer(client: Any, protocol: Any = tritonclient.http, version: str = "") -> np.ndarray:
    """Ask for two rows of the model `add`."""
    rows = np.arange(32, dtype=np.float32).reshape(2, 16)
    asked = protocol.InferInput("input", [2, 16], "FP32").set_data_from_numpy(rows)
    return client.infer("add", [asked], model_version=version).as_numpy("output")


def replace_with_doubled(repository: Path) -> None:
    """Add version 2 of `add`, which adds twice as much."""
    rows = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 16]) for name in ("input", "output")]
    node = helper.make_node("Add", ["input", "input"], ["output"])
    graph = helper.make_graph([node], "doubled", rows[:1], rows[1:])
    folder = repository / "add" / "2"
    folder.mkdir()
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save_model(made, folder / "model.onnx")


def test_the_whole_repository_is_served_by_every_worker(serve: Callable[..., Server]) -> None:
    server = serve()
    for _ in range(ENOUGH):
        client = http(server)
        assert client.is_model_ready("add")
        assert client.is_model_ready("mlp")
    assert infer(http(server)).shape == (2, 16)
    index = grpc(server).get_model_repository_index().models
    assert [(entry.name, entry.version, entry.state) for entry in index] == [
        ("add", "1", "READY"),
        ("mlp", "1", "READY"),
    ]
    for client in (http(server), grpc(server)):
        with pytest.raises(InferenceServerException, match="not allowed"):
            client.load_model("add")


def test_a_load_and_an_unload_reach_every_worker(serve: Callable[..., Server], repository: Path) -> None:
    server = serve("--model-control", "explicit", "--load-model", "add")
    assert not http(server).is_model_ready("mlp")
    states = {entry["name"]: entry["state"] for entry in http(server).get_model_repository_index()}
    assert states == {"add": "READY", "mlp": "UNAVAILABLE"}
    http(server).load_model("mlp")
    assert all(http(server).is_model_ready("mlp") for _ in range(ENOUGH))

    before = infer(http(server))
    replace_with_doubled(repository)
    grpc(server).load_model("add")
    doubled = 2 * np.arange(32, dtype=np.float32).reshape(2, 16)
    assert not np.array_equal(before, doubled)
    for _ in range(ENOUGH):
        np.testing.assert_array_equal(infer(http(server)), doubled)
        with pytest.raises(InferenceServerException, match="no version '1'"):
            infer(http(server), version="1")

    grpc(server).unload_model("add")
    assert not any(http(server).is_model_ready("add") for _ in range(ENOUGH))
    with pytest.raises(InferenceServerException, match="unloaded"):
        infer(http(server))
    http(server).load_model("add")
    np.testing.assert_array_equal(infer(http(server)), doubled)


def test_requests_go_on_while_a_model_is_loaded_again_and_again(serve: Callable[..., Server]) -> None:
    server = serve("--model-control", "explicit", "--load-model", "add")
    expected = infer(http(server))
    ended = threading.Event()
    failures: list[Exception] = []

    def ask_for_ever() -> None:
        client = http(server)
        try:
            while not ended.is_set():
                np.testing.assert_array_equal(infer(client), expected)
        except Exception as error:
            failures.append(error)

    askers = [threading.Thread(target=ask_for_ever) for _ in range(4)]
    for asker in askers:
        asker.start()
    for _ in range(10):
        http(server).load_model("add")
    ended.set()
    for asker in askers:
        asker.join()
    assert failures == []
    assert server.metric("mcp2026_serving_revision", model="add") == 11


def test_a_load_that_fails_in_the_workers_changes_nothing(
    serve: Callable[..., Server], repository: Path
) -> None:
    server = serve("--model-control", "explicit", "--load-model", "add")
    expected = infer(http(server))
    (repository / "add" / "1" / "model.onnx").write_bytes(b"no model")
    with pytest.raises(InferenceServerException, match="not an ONNX model"):
        http(server).load_model("add")
    with pytest.raises(InferenceServerException, match=r"no model 'nothing'"):
        http(server).load_model("nothing")
    for _ in range(ENOUGH):
        np.testing.assert_array_equal(infer(http(server)), expected)


def test_a_worker_that_is_replaced_serves_what_the_others_serve(serve: Callable[..., Server]) -> None:
    server = serve("--model-control", "explicit", "--load-model", "add")
    http(server).load_model("mlp")
    os.kill(server.workers()[0], signal.SIGKILL)
    server.wait_for_log(lambda line: "serves again" in line["message"])
    assert all(http(server).is_model_ready("mlp") for _ in range(ENOUGH))


def test_shared_memory_is_known_to_every_worker(serve: Callable[..., Server]) -> None:
    server = serve()
    rows = np.arange(32, dtype=np.float32).reshape(2, 16)
    region = client_memory.create_shared_memory_region("r", "contract-test-region", 256)
    try:
        client_memory.set_shared_memory_region(region, [rows])
        http(server).register_system_shared_memory("r", "contract-test-region", 256)
        expected = infer(http(server))
        for protocol, connect in ((tritonclient.http, http), (tritonclient.grpc, grpc)):
            asked = protocol.InferInput("input", [2, 16], "FP32")
            asked.set_shared_memory("r", 128)
            wanted = protocol.InferRequestedOutput("output")
            wanted.set_shared_memory("r", 128, 128)
            for _ in range(ENOUGH):
                client_memory.set_shared_memory_region(region, [np.zeros_like(rows)], 128)
                connect(server).infer("add", [asked], outputs=[wanted])
                answer = client_memory.get_contents_as_numpy(region, np.float32, [2, 16], 128)
                np.testing.assert_array_equal(answer, expected)
        grpc(server).unregister_system_shared_memory("r")
        for _ in range(ENOUGH):
            assert http(server).get_system_shared_memory_status() == []
    finally:
        client_memory.destroy_shared_memory_region(region)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(
            ["--model-control", "explicit", "--load-model", "x"], "no such model", id="no such model"
        ),
        pytest.param(["--model-path", "m.onnx"], "exactly one of them", id="two sources"),
    ],
)
def test_a_start_that_cannot_be_ends_in_one_sentence(
    repository: Path, arguments: list[str], words: str
) -> None:
    ended = run_server("--model-repository", str(repository), "--port", "0", *arguments)
    assert ended.returncode in (1, 2)
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_memory_is_flat_over_fifty_loads_and_unloads(repository: Path) -> None:
    weights = np.ones((2048, 2048), np.float32)  # 16 MiB: to keep one copy in ten would be seen
    rows = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2048]) for name in ("x", "y")]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "wide", rows[:1], rows[1:], [from_array(weights, "w")])
    (repository / "wide" / "1").mkdir(parents=True)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save_model(made, repository / "wide" / "1" / "model.onnx")
    server = Server("--model-repository", str(repository), "--threads", "1", "--model-control", "explicit")
    try:
        client = http(server)
        asked = tritonclient.http.InferInput("x", [1, 2048], "FP32")
        asked.set_data_from_numpy(np.ones((1, 2048), np.float32))

        def load_and_unload(times: int) -> None:
            for _ in range(times):
                client.load_model("wide")
                client.infer("wide", [asked])
                client.unload_model("wide")

        load_and_unload(5)
        flat = server.resident_mib() + 32  # what the last one had may still be on its way back to the system
        load_and_unload(45)
        server.wait_until(lambda: server.resident_mib() < flat, f"less than {flat} MiB are held")
    finally:
        server.close()
