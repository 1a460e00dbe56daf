"""Versions that clients register and retire on a server with several workers."""

import os
import shutil
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from mcp2026.api.contract.native_pb2 import RegisteredVersion, RegisterVersionRequest
from tests.contract.runtime.server_process import PATIENCE, Reply, Server, serving_config

ROW = np.zeros((1, 16), np.float32)
WORKERS = 2


class World:
    """A server with two workers that serves `add` as v1; `add-hundred` lies beside it."""

    def __init__(self, folder: Path, model: Callable[[str], Path], *arguments: str) -> None:
        self.folder = folder / "models"
        self.folder.mkdir()
        for name in ("add", "add-hundred"):
            shutil.copy(model(name), self.folder / f"{name}.onnx")
        config = serving_config(folder / "serving.json", [("v1", self.folder / "add.onnx", 100)])
        self.server = Server(
            *("--serving-config", str(config), "--workers", str(WORKERS), "--threads", "1"),
            *(arguments or ("--model-control", "explicit")),
        )

    def registration(self, **changes: Any) -> dict[str, Any]:
        return {
            "request_id": str(uuid.uuid4()),
            "model": "model",
            "version_id": "v2",
            "uri": f"file://{self.folder}/add-hundred.onnx",
            "weight": 25,
            "owner_email": "vision@example.com",
            **changes,
        }

    def register(self, **changes: Any) -> Reply:
        return self.server.request("POST", "/v1/models", self.registration(**changes))

    def retire(self, version_id: str) -> Reply:
        return self.server.request("DELETE", f"/v1/models/model/versions/{version_id}")

    def described(self) -> dict[str, Any]:
        return dict(self.server.request("GET", "/v1/models/model").json)

    def weights(self) -> dict[str, int]:
        return {one["version_id"]: one["weight"] for one in self.described()["versions"]}

    def everywhere(self, version_id: str) -> set[int]:
        """Return the statuses of requests for a version on so many connections that every worker has some."""
        return {self.server.infer(ROW, version_id=version_id).status for _ in range(10 * WORKERS)}

    def restore(self) -> None:
        """Serve v1 alone again."""
        if "v1" not in self.weights():
            assert self.register(version_id="v1", uri=f"file://{self.folder}/add.onnx").status == 201
        for version_id in self.weights().keys() - {"v1"}:
            assert self.retire(version_id).status == 200


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory, model: Callable[[str], Path]) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("world"), model)
    yield world
    world.server.close()


@pytest.fixture
def world(started: World) -> Iterator[World]:
    yield started
    started.restore()


def test_a_version_comes_and_goes_in_all_workers(world: World) -> None:
    revision = world.described()["revision"]
    reply = world.register()
    assert (reply.status, reply.json["revision"], reply.json["weight"]) == (201, revision + 1, 25)
    assert world.everywhere("v2") == {200}
    assert world.server.infer(ROW, version_id="v2").array()[0, 0] == 100
    assert world.weights() == {"v1": 75, "v2": 25}
    registered = world.described()["versions"][1]
    assert registered["owner_email"] == "vision@example.com"
    assert registered["uri"].endswith("/add-hundred.onnx")

    answers = [world.server.infer(ROW).json["version_id"] for _ in range(400)]
    assert 0 < answers.count("v2") < answers.count("v1")

    reply = world.retire("v1")
    assert (reply.status, reply.json) == (
        200,
        {"model": "model", "version_id": "v1", "revision": revision + 2},
    )
    assert world.everywhere("v1") == {404}
    assert world.weights() == {"v2": 100}
    assert {world.server.infer(ROW).json["version_id"] for _ in range(20)} == {"v2"}
    assert (world.retire("v2").status, world.retire("v1").status) == (409, 404)


def test_requests_are_answered_while_versions_change(world: World) -> None:
    done = threading.Event()
    failures: list[bytes] = []

    def ask() -> None:
        while not done.is_set():
            reply = world.server.infer(ROW)
            if reply.status != 200:
                failures.append(reply.body)

    callers = [threading.Thread(target=ask) for _ in range(3)]
    for caller in callers:
        caller.start()
    for number in range(3):
        assert world.register(version_id=f"n{number}", weight=50).status == 201
        assert world.retire(f"n{number}").status == 200
    done.set()
    for caller in callers:
        caller.join()
    assert failures == []


def test_a_worker_that_is_replaced_serves_what_was_registered(world: World) -> None:
    assert world.register().status == 201
    killed = world.server.workers()[0]
    seen = len(world.server.log)
    os.kill(killed, signal.SIGKILL)
    world.server.wait_for_log(lambda line: "serves again" in line["message"], seen)
    assert world.everywhere("v2") == {200}


def test_the_same_request_is_one_registration_over_both_transports(world: World) -> None:
    document = world.registration()
    first = world.server.request("POST", "/v1/models", document)
    assert first.status == 201
    with grpc.insecure_channel(f"127.0.0.1:{world.server.grpc_port}") as channel:
        call = channel.unary_unary("/mcp2026.v1.ModelService/RegisterVersion")
        content = RegisterVersionRequest(**document).SerializeToString()
        again = RegisteredVersion.FromString(call(content, timeout=PATIENCE))
        assert (again.request_id, again.revision) == (document["request_id"], first.json["revision"])
        other = RegisterVersionRequest(**{**document, "weight": 26}).SerializeToString()
        with pytest.raises(grpc.RpcError) as caught:
            call(other, timeout=PATIENCE)
        error: Any = caught.value
        assert error.code() is grpc.StatusCode.ALREADY_EXISTS
    assert world.server.request("POST", "/v1/models", document).json == first.json
    assert world.described()["revision"] == first.json["revision"]


def test_refusals_leave_everything_as_it_was(world: World) -> None:
    (world.folder / "broken.onnx").write_bytes(b"not a model")
    for changes, status, field in (
        ({"version_id": "v1"}, 409, "version_id"),
        ({"model": "other"}, 404, "model"),
        ({"uri": "file:///etc/passwd"}, 400, "uri"),
        ({"uri": f"file://{world.folder}/none.onnx"}, 400, "uri"),
        ({"uri": f"file://{world.folder}/broken.onnx"}, 400, "uri"),
        ({"uri": f"file://{world.folder}/../serving.json"}, 400, "uri"),
        ({"uri": "pvc://models/add.onnx"}, 400, "uri"),
    ):
        reply = world.register(**changes)
        assert (reply.status, reply.error["field"]) == (status, field), changes
    assert world.weights() == {"v1": 100}
    assert world.everywhere("v1") == {200}


def test_a_server_that_was_not_started_for_it_changes_nothing(
    tmp_path: Path, model: Callable[[str], Path]
) -> None:
    world = World(tmp_path, model, "--model-control", "none")
    try:
        for reply in (world.register(), world.retire("v1")):
            assert reply.status == 403
            assert "--model-control explicit" in reply.error["allowed"]
        assert world.weights() == {"v1": 100}
    finally:
        world.server.close()
