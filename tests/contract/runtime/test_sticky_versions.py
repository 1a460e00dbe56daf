"""A sticky key decides on the version over every transport alike, and labels name versions."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.http as triton_http

from mcp2026.api.contract import native_pb2 as native
from mcp2026.api.names import STICKY_KEY_HEADER
from mcp2026.client import Client
from mcp2026.runtime.model.traffic import TrafficTable
from tests.contract.runtime.server_process import Server

WEIGHTS = {"v1": 70, "v2": 30}
X = np.zeros((1, 16), np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    from tools.models import generate

    folder = tmp_path_factory.mktemp("sticky")
    files = {"v1": generate("add", folder), "v2": generate("add-hundred", folder)}
    labels = {"v1": ["stable"], "v2": ["canary"]}
    versions = [
        {"versionId": name, "path": str(files[name]), "weight": weight, "labels": labels[name]}
        for name, weight in WEIGHTS.items()
    ]
    path = folder / "serving.json"
    path.write_text(json.dumps({"model": "model", "versions": versions}))
    server = Server("--serving-config", str(path), "--threads", "1", "--workers", "2")
    yield server
    server.close()


def over_rest(server: Server, key: str) -> str:
    body = {"input": X.ravel().tolist(), "shape": list(X.shape)}
    reply = server.request("POST", "/v1/infer", body, {STICKY_KEY_HEADER: key})
    return str(reply.json["version_id"])


def over_open_inference(server: Server, key: str) -> str:
    client = triton_http.InferenceServerClient(f"127.0.0.1:{server.port}")
    try:
        tensor = triton_http.InferInput("input", list(X.shape), "FP32")
        tensor.set_data_from_numpy(X)
        answer = client.infer("model", [tensor], headers={STICKY_KEY_HEADER: key})
        return str(answer.get_response()["model_version"])
    finally:
        client.close()


def over_grpc(server: Server, key: str) -> str:
    message = native.InferRequest(shape=native.Shape(sizes=list(X.shape)))
    message.input.numbers.extend(X.ravel().tolist())
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        infer = channel.unary_unary(
            "/mcp2026.v1.InferenceService/Infer",
            native.InferRequest.SerializeToString,
            native.InferResponse.FromString,
        )
        return str(infer(message, metadata=[(STICKY_KEY_HEADER, key)], timeout=60).version_id)


TRANSPORTS: list[Callable[[Server, str], str]] = [over_rest, over_open_inference, over_grpc]


@pytest.mark.parametrize("ask", TRANSPORTS)
def test_a_key_has_the_same_version_over_every_transport_and_in_every_worker(
    server: Server, ask: Callable[[Server, str], str]
) -> None:
    table = TrafficTable(WEIGHTS)
    for number in range(20):
        key = f"user-{number}"
        assert ask(server, key) == table.choose_for(key.encode())


def test_a_label_names_a_version(server: Server) -> None:
    with Client(f"http://127.0.0.1:{server.port}") as client:
        for label, answer in [("stable", 1), ("canary", 100), ("v2", 100)]:
            assert client.infer({"input": X}, model="model", version=label)["output"][0, 0] == answer
    unknown = server.infer(X, version_id="latest")
    assert (unknown.status, unknown.error["allowed"]) == (404, "v1, v2, stable, canary")


def test_a_named_version_wins_over_a_key(server: Server) -> None:
    body = {"input": X.ravel().tolist(), "shape": list(X.shape), "version_id": "v2"}
    for number in range(10):
        reply = server.request("POST", "/v1/infer", body, {STICKY_KEY_HEADER: f"user-{number}"})
        assert reply.json["version_id"] == "v2"


def test_labels_and_ids_are_names_of_one_kind(tmp_path: Path) -> None:
    from mcp2026.api.errors import InvalidResourceError
    from mcp2026.api.serving import decode_serving_config

    versions = [
        {"versionId": "v1", "path": "/a", "labels": ["v2"]},
        {"versionId": "v2", "path": "/b", "weight": 0},
    ]
    with pytest.raises(InvalidResourceError, match="each label and id once"):
        decode_serving_config(json.dumps({"model": "m", "versions": versions}).encode())
