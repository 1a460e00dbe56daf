"""What HTTP alone has: JSON beside bytes, compressed bodies, raw bodies, statuses and error bodies."""

import gzip
import http.client
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from tests.contract.runtime.open_inference_server import (
    ONNX_TYPES,
    address,
    echo_model,
    serve,
    sums_model,
)
from tests.contract.runtime.server_process import PATIENCE, Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    names = ["sums", "wide", "a b", *ONNX_TYPES]
    sums_model(folder, "sums")
    echo_model(folder, "wide", "FP32", None, 3_000)
    echo_model(folder, "a b", "FP32", None, 2)
    for datatype in ONNX_TYPES:
        echo_model(folder, datatype, datatype, None, 2)
    server = serve(folder, names, "--max-body-mib", "1")
    yield server
    server.close()


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with triton.InferenceServerClient(address(server, "http")) as client:
        yield client


class Reply:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def request(server: Server, method: str, path: str, body: Any = None, **headers: str) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    try:
        payload = json.dumps(body).encode() if isinstance(body, dict) else body
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, payload, sent)
        return Reply(connection.getresponse())
    finally:
        connection.close()


JSON_VALUES: dict[str, list[Any]] = {
    "BOOL": [True, False],
    "BYTES": ["one", "zwölf"],
    "FP16": [0.5, -65504.0],
    "BF16": [0.5, -3.0],
    "FP32": [0.1, -2.0],
    "FP64": [0.1, 1e300],
}


@pytest.mark.parametrize("datatype", ONNX_TYPES)
def test_every_datatype_goes_through_json(server: Server, datatype: str) -> None:
    values = JSON_VALUES.get(datatype, [0, 100])
    for data in (values, [values]):
        tensor = {"name": "x", "datatype": datatype, "shape": [1, 2], "data": data}
        reply = request(server, "POST", f"/v2/models/{datatype}/infer", {"inputs": [tensor]})
        assert reply.status == 200, reply.body
        assert reply.headers["content-type"] == "application/json"
        assert "inference-header-content-length" not in reply.headers
        (output,) = reply.json["outputs"]
        assert output == {"name": "y", "datatype": datatype, "shape": [1, 2], "data": values}


def test_json_and_binary_are_mixed_as_the_client_likes(client: Any) -> None:
    a, b = np.arange(4, dtype=np.float32).reshape(1, 4), np.ones((1, 4), np.float32)
    inputs = [triton.InferInput("a", [1, 4], "FP32"), triton.InferInput("b", [1, 4], "FP32")]
    inputs[0].set_data_from_numpy(a, binary_data=False)
    inputs[1].set_data_from_numpy(b, binary_data=True)
    outputs = [
        triton.InferRequestedOutput("sum", binary_data=False),
        triton.InferRequestedOutput("difference", binary_data=True),
    ]
    result = client.infer("sums", inputs, outputs=outputs)
    assert "data" in result.get_output("sum")
    assert result.get_output("difference")["parameters"] == {"binary_data_size": 16}
    assert (result.as_numpy("sum") == a + b).all()
    assert (result.as_numpy("difference") == a - b).all()


@pytest.mark.parametrize("sent", [None, "gzip", "deflate"])
@pytest.mark.parametrize("answered", [None, "gzip", "deflate"])
@pytest.mark.parametrize("rows", [1, 4])
def test_bodies_are_compressed_both_ways(
    client: Any, sent: str | None, answered: str | None, rows: int
) -> None:
    array = np.random.default_rng(0).standard_normal((rows, 3_000)).astype(np.float32)
    tensor = triton.InferInput("x", list(array.shape), "FP32").set_data_from_numpy(array)
    result = client.infer(
        "wide",
        [tensor],
        request_compression_algorithm=sent,
        response_compression_algorithm=answered,
    )
    assert (result.as_numpy("y") == array).all()


def test_a_bomb_is_refused(server: Server) -> None:
    bomb = gzip.compress(bytes(50_000_000), 1)
    reply = request(server, "POST", "/v2/models/sums/infer", bomb, content_encoding="gzip")
    assert reply.status == 413
    assert "decompressed" in reply.json["error"]
    noise = gzip.compress(np.random.default_rng(0).bytes(100_000))
    for body in (bomb[:50], noise[:50_000], b"nothing"):
        assert request(server, "POST", "/v2/models/sums/infer", body, content_encoding="gzip").status == 400
    reply = request(server, "POST", "/v2/models/sums/infer", b"x", content_encoding="br")
    assert (reply.status, reply.headers["accept-encoding"]) == (415, "gzip, deflate")


def test_a_client_may_leave_while_its_body_is_decompressed(server: Server) -> None:
    body = gzip.compress(np.random.default_rng(0).bytes(900_000), 1)
    for _ in range(5):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        connection.request("POST", "/v2/models/sums/infer", body, {"Content-Encoding": "gzip"})
        connection.close()
    assert request(server, "GET", "/v2/health/ready").status == 200


def test_a_body_that_is_too_large_is_told_in_words(client: Any) -> None:
    array = np.zeros((100, 3_000), np.float32)
    tensor = triton.InferInput("x", list(array.shape), "FP32").set_data_from_numpy(array)
    with pytest.raises(InferenceServerException, match="larger than 1048576 bytes") as mistake:
        client.infer("wide", [tensor])
    assert str(mistake.value)
    assert mistake.value.status() == "413"


def test_a_raw_body_is_one_row_of_the_only_input(server: Server) -> None:
    row = np.array([1.5, -2], np.float32).tobytes()
    reply = request(server, "POST", "/v2/models/FP32/infer", row, inference_header_content_length="0")
    assert reply.status == 200
    length = int(reply.headers["inference-header-content-length"])
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.body[length:] == row
    refusal = request(server, "POST", "/v2/models/sums/infer", row, inference_header_content_length="0")
    assert refusal.status == 400


def test_infinities_come_as_texts_that_the_client_reads(client: Any) -> None:
    array = np.array([[np.inf, np.nan]], np.float32)
    tensor = triton.InferInput("x", [1, 2], "FP32").set_data_from_numpy(array)
    result = client.infer("FP32", [tensor], outputs=[triton.InferRequestedOutput("y", binary_data=False)])
    assert result.get_output("y")["data"] == ["Infinity", "NaN"]
    assert np.array_equal(result.as_numpy("y"), array, equal_nan=True)


def test_strings_that_onnx_does_not_have_are_the_clients_mistake(client: Any) -> None:
    array = np.array([[b"\xff", b""]], object)
    tensor = triton.InferInput("x", [1, 2], "BYTES").set_data_from_numpy(array)
    with pytest.raises(InferenceServerException, match="UTF-8") as mistake:
        client.infer("BYTES", [tensor])
    assert mistake.value.status() == "400"


def test_a_name_may_need_quoting(client: Any) -> None:
    assert client.get_model_metadata("a b")["name"] == "a b"
    tensor = triton.InferInput("x", [1, 2], "FP32").set_data_from_numpy(np.ones((1, 2), np.float32))
    assert client.infer("a b", [tensor]).get_response()["model_name"] == "a b"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v2/nothing", None, 404),
        ("GET", "/v2/models/unknown", None, 404),
        ("GET", "/v2/models/unknown/config", None, 404),
        ("GET", "/v2/models/sums/versions/9/stats", None, 404),
        ("GET", "/v2/models/sums/infer", None, 405),
        ("POST", "/v2", b"", 405),
        ("GET", "/v2/models/unknown/ready", None, 400),
        ("POST", "/v2/models/sums/infer", b"", 400),
        ("POST", "/v2/models/sums/infer", b"{", 400),
        ("POST", "/v2/models/sums/infer", b'{"inputs": 1}', 400),
        ("POST", "/v2/models/sums/infer", b"\xff\xfe", 400),
        ("POST", "/v2/models/sums/infer", b"[" * 100_000, 400),
        ("POST", "/v2/repository/index", b"nothing", 400),
        ("POST", "/v2/repository/models/unknown/load", b"", 404),
        ("POST", "/v2/repository/models/unknown/unload", b"", 404),
        ("POST", "/v2/repository/models/sums/load", b'{"parameters": {"config": "{}"}}', 501),
        ("POST", "/v2/systemsharedmemory/region/r/register", b"{}", 400),
        ("POST", "/v2/systemsharedmemory/region/r/register", b'{"key": "k", "byte_size": -1}', 400),
        ("POST", "/v2/systemsharedmemory/region/r/register", b'{"key": "k", "byte_size": 1e30}', 400),
        ("GET", "/v2/systemsharedmemory/region/r/status", None, 404),
        ("POST", "/v2/cudasharedmemory/region/r/register", b"{}", 501),
        ("POST", "/v2/trace/setting", b'{"trace_rate": "1"}', 501),
        ("POST", "/v2/models/unknown/trace/setting", b"{}", 404),
        ("POST", "/v2/logging", b'{"log_info": false}', 501),
    ],
)
def test_a_mistake_has_its_status_and_one_text(
    server: Server, method: str, path: str, body: bytes | None, status: int
) -> None:
    reply = request(server, method, path, body)
    assert reply.status == status, reply.body
    assert list(reply.json) == ["error"]
    assert isinstance(reply.json["error"], str)
    assert reply.json["error"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v2"),
        ("HEAD", "/v2"),
        ("GET", "/v2/models/stats"),
        ("GET", "/v2/cudasharedmemory/status"),
        ("POST", "/v2/cudasharedmemory/unregister"),
        ("POST", "/v2/cudasharedmemory/region/r/unregister"),
        ("POST", "/v2/systemsharedmemory/unregister"),
        ("GET", "/v2/systemsharedmemory/status"),
        ("GET", "/v2/models/sums/trace/setting"),
        ("POST", "/v2/repository/index"),
    ],
)
def test_what_clients_ask_first_is_answered(server: Server, method: str, path: str) -> None:
    assert request(server, method, path, b"" if method == "POST" else None).status == 200


def test_only_what_is_ready_is_listed_on_demand(server: Server) -> None:
    index = request(server, "POST", "/v2/repository/index", {"ready": True}).json
    assert {entry["state"] for entry in index} == {"READY"}
    assert {"name": "sums", "version": "1", "state": "READY", "reason": ""} in index


def test_statistics_are_all_there_from_the_start(server: Server) -> None:
    (statistics,) = request(server, "GET", "/v2/models/UINT64/versions/1/stats").json["model_stats"]
    for name in (
        "success",
        "queue",
        "compute_input",
        "compute_infer",
        "compute_output",
        "cache_hit",
        "cache_miss",
    ):
        duration = statistics["inference_stats"][name]
        assert all(isinstance(duration[part], int) and duration[part] >= 0 for part in ("count", "ns"))


def test_a_body_that_comes_byte_by_byte_is_one_body(server: Server) -> None:
    body = json.dumps(
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
    ).encode()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    pieces = (bytes([byte]) for byte in body)
    connection.request(
        "POST", "/v2/models/FP32/infer", pieces, {"Transfer-Encoding": "chunked"}, encode_chunked=True
    )
    assert Reply(connection.getresponse()).json["outputs"][0]["data"] == [1, 2]
    connection.close()


def test_a_server_may_take_no_shared_memory(tmp_path: Path) -> None:
    echo_model(tmp_path, "m", "FP32", None, 2)
    server = serve(tmp_path, ["m"], "--no-shared-memory")
    try:
        assert "system_shared_memory" not in request(server, "GET", "/v2").json["extensions"]
        body = {"key": "k", "byte_size": 1}
        refusal = request(server, "POST", "/v2/systemsharedmemory/region/r/register", body)
        assert refusal.status == 501
        assert "--no-shared-memory" in refusal.json["error"]
        assert request(server, "POST", "/v2/systemsharedmemory/unregister", b"").status == 200
    finally:
        server.close()


def test_a_server_that_leaves_is_live_and_not_ready(tmp_path: Path) -> None:
    echo_model(tmp_path, "m", "FP32", None, 2)
    server = serve(tmp_path, ["m"], "--lame-duck-seconds", "30")
    try:
        server.process.send_signal(signal.SIGTERM)
        server.wait_until(
            lambda: request(server, "GET", "/v2/health/ready").status == 503, "it says that it leaves"
        )
        assert request(server, "GET", "/v2/health/live").status == 200
        assert request(server, "GET", "/v2/models/m/ready").status == 503
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
        assert request(server, "POST", "/v2/models/m/infer", body).status == 200
    finally:
        server.process.kill()  # the rest of its 30 s teaches nothing
        server.close()
