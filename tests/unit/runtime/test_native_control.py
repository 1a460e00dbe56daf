"""Control calls: paths, verbs and bodies over HTTP, messages over gRPC, all held against the contract."""

import asyncio
import json
import logging
from html.parser import HTMLParser
from typing import Any

import pytest

from mcp2026.api.contract import native_pb2
from mcp2026.api.contract.documents import document, document_text
from mcp2026.api.contract.messages import document_of
from mcp2026.api.contract.rpc_status import ErrorDetail, decode_status
from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.api.serving import Batching, ServedVersion, ServingConfig
from mcp2026.runtime.changes import RegisterVersion, RetireVersion, VersionChange, VersionsChanged
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.health import Health, Phase
from mcp2026.runtime.model.loaded import served_model
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.protocol.exchange import RequestHead, Response
from mcp2026.runtime.protocol.grpc.service import CallHead, Reply
from mcp2026.runtime.protocol.native.control_api import MAX_REQUEST_BYTES, ControlApi
from mcp2026.runtime.protocol.native.control_http import ControlHttp
from mcp2026.runtime.protocol.native.errors import error_reply
from mcp2026.runtime.protocol.native.grpc_service import NativeService
from mcp2026.runtime.protocol.native.operations import Routes, operations
from mcp2026.runtime.protocol.native.page import page
from tests.unit.runtime.loaded_versions import metrics_for
from tests.unit.runtime.signatures import tensor, version

REGISTRATION = {
    "request_id": "6F1C3F0E-5d0b-4f3a-9d0e-6c1b6f1e2a10",
    "model": "m",
    "version_id": "v2",
    "uri": "file:///models/m.onnx",
    "weight": 10,
    "owner_email": "a@example.com",
}
BATCHING = {
    "sessions": [],
    "batches": dict.fromkeys(("size", "delay", "deadline", "drain", "idle", "full"), 0),
    "carriers": [],
    "worker": 0,
    "worker_sessions": 0,
}


class World:
    """One process with one model over both transports."""

    def __init__(self) -> None:
        self.health = Health()
        self.health.advance(Phase.SERVING)
        one = version((tensor("x", "FP32", None, 4),), (tensor("y", "BF16", None),))
        registered = ServedVersion("7", "m.onnx", 100, uri="file:///m.onnx", owner_email="a@example.com")
        config = ServingConfig("m", (registered,), batching=Batching(max_batch_size=8), revision=3)
        self.metrics = metrics_for(config)
        self.store = ModelStore()
        self.store.put(served_model(config, [one], self.metrics.version))
        self.asked: list[tuple[VersionChange, VersionsChanged]] = []
        self.was_asked = asyncio.Event()
        self.outcome: RequestError | int | None = 4
        self.batching: dict[str, Any] = BATCHING
        self.api = ControlApi(self.health, self.store, self._change, {"getBatching": lambda: self.batching})
        self.http = ControlHttp(self.api, self.metrics)
        self.grpc = NativeService(self.health, self.metrics, self.api, lambda *_: None)

    def _change(self, change: VersionChange, changed: VersionsChanged) -> None:
        self.asked.append((change, changed))
        self.was_asked.set()
        if self.outcome is not None:
            changed(self.outcome)

    async def request(self, method: str, path: str, body: Any = b"", **headers: str) -> Response:
        assert self.http.serves(path)
        encoded = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        head = RequestHead(method, path, encoded)
        refusal = self.http.admit(head)
        if refusal is not None:
            return refusal
        told: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.http.begin(head, content, told.set_result)
        return await told

    async def call(self, path: str, content: bytes) -> Reply:
        method = self.grpc.unary(f"/mcp2026.v1.{path}")
        assert method is not None
        told: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        method(CallHead(path, {}, None), content, told.set_result)
        return await told


def error_of(response: Response) -> dict[str, Any]:
    return dict(json.loads(response.body)["error"])


def detail_of(reply: Reply) -> ErrorDetail:
    detail = decode_status(dict(reply.trailers)[b"grpc-status-details-bin"])
    assert detail is not None
    return detail


@pytest.fixture
async def world() -> World:
    return World()


async def test_models_are_listed_and_described_over_both(world: World) -> None:
    described = {
        "name": "m",
        "revision": 3,
        "max_batch_size": 8,
        "versions": [
            {
                "version_id": "7",
                "weight": 100,
                "batched": True,
                "inputs": [{"name": "x", "dtype": "float32", "shape": [-1, 4]}],
                "outputs": [{"name": "y", "dtype": "bfloat16", "shape": [-1]}],
                "uri": "file:///m.onnx",
                "owner_email": "a@example.com",
            }
        ],
    }
    listed = await world.request("GET", "/v1/models")
    assert (listed.status, json.loads(listed.body)) == (200, {"models": [described]})
    assert json.loads((await world.request("GET", "/v1/models/m")).body) == described
    reply = await world.call("ModelService/ListModels", b"")
    assert document_of(native_pb2.ModelList.FromString(reply.message)) == {"models": [described]}
    asked = native_pb2.DescribeModelRequest(model="m").SerializeToString()
    reply = await world.call("ModelService/DescribeModel", asked)
    assert document_of(native_pb2.Model.FromString(reply.message)) == described


async def test_a_registration_reaches_the_parent_and_is_answered_when_all_serve_it(world: World) -> None:
    response = await world.request("POST", "/v1/models", REGISTRATION)
    assert response.status == 201
    answer = {name: REGISTRATION[name] for name in ("request_id", "model", "version_id", "weight")}
    assert json.loads(response.body) == {**answer, "revision": 4}
    ((change, _),) = world.asked
    assert change == RegisterVersion(**{**REGISTRATION, "request_id": REGISTRATION["request_id"].lower()})


async def test_a_whole_number_may_be_written_as_a_float(world: World) -> None:
    response = await world.request("POST", "/v1/models", {**REGISTRATION, "weight": 10.0})
    assert json.loads(response.body)["weight"] == 10


async def test_a_retirement(world: World) -> None:
    response = await world.request("DELETE", "/v1/models/m%20n/versions/v%2F2")
    assert response.status == 200
    assert json.loads(response.body) == {"model": "m n", "version_id": "v/2", "revision": 4}
    assert world.asked[0][0] == RetireVersion("m n", "v/2")


async def test_a_caller_that_leaves_is_not_told(world: World) -> None:
    world.outcome = None
    head = RequestHead("POST", "/v1/models", {})
    told: list[Response] = []
    cancel = world.http.begin(head, json.dumps(REGISTRATION).encode(), told.append)
    assert cancel is not None
    await world.was_asked.wait()
    cancel()
    await asyncio.sleep(0)
    world.asked[0][1](4)
    await asyncio.sleep(0)
    assert told == []


@pytest.mark.parametrize(
    "error",
    [
        RequestError(ErrorCode.PERMISSION_DENIED, "not here", None, "--model-control explicit"),
        RequestError(ErrorCode.FAILED_PRECONDITION, "the last version", "version_id", "another"),
        RequestError(ErrorCode.ALREADY_EXISTS, "there already", "version_id", "another id"),
    ],
)
async def test_a_refusal_is_the_same_over_both(world: World, error: RequestError) -> None:
    world.outcome = error
    asked = native_pb2.RetireVersionRequest(model="m", version_id="7").SerializeToString()
    response = await world.request("DELETE", "/v1/models/m/versions/7")
    reply = await world.call("ModelService/RetireVersion", asked)
    assert reply.code is not GrpcCode.OK
    told = {name: value for name, value in detail_of(reply)._asdict().items() if value is not None}
    assert error_of(response) == told


@pytest.mark.parametrize(
    ("body", "field", "rule"),
    [
        (b"", "body", "type"),
        (b"{", "body", "type"),
        (b'"\xff"', "body", "type"),
        (b"[" * 100_000 + b"]" * 100_000, "body", None),
        ([], "body", "type"),
        (None, "body", "type"),
        ({**REGISTRATION, "weight": 101}, "weight", "maximum"),
        ({**REGISTRATION, "more": 1}, "more", "additionalProperties"),
        ({**REGISTRATION, "owner_email": "nobody"}, "owner_email", "format"),
    ],
)
async def test_bodies_that_break_the_contract(world: World, body: Any, field: str, rule: str | None) -> None:
    error = error_of(await world.request("POST", "/v1/models", body))
    assert (error["field"], error.get("rule")) == (field, rule)
    assert error["allowed"]
    assert not world.asked


async def test_names_in_paths_are_held_against_the_contract(world: World) -> None:
    response = await world.request("GET", "/v1/models/" + "m" * 254)
    assert (response.status, error_of(response)["rule"]) == (400, "maxLength")
    response = await world.request("DELETE", "/v1/models//versions/1")
    assert (response.status, error_of(response)["rule"]) == (400, "minLength")
    assert (await world.request("GET", "/v1/models/%FF")).status == 404


async def test_a_request_that_is_too_large_is_refused_over_both(world: World) -> None:
    response = await world.request("POST", "/v1/models", b" " * (MAX_REQUEST_BYTES + 1))
    assert response.status == 413
    large = native_pb2.DescribeModelRequest(model="m" * MAX_REQUEST_BYTES).SerializeToString()
    reply = await world.call("ModelService/DescribeModel", large)
    assert reply.code is GrpcCode.RESOURCE_EXHAUSTED
    assert detail_of(reply).code == error_of(response)["code"]


async def test_bytes_that_are_no_message(world: World) -> None:
    reply = await world.call("ModelService/DescribeModel", b"\x0a\x05a")
    assert reply.code is GrpcCode.INVALID_ARGUMENT
    assert detail_of(reply).field == "body"


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/v1/models", b"GET, HEAD, POST"),
        ("POST", "/v1/models/m", b"GET, HEAD"),
        ("GET", "/v1/models/m/versions/7", b"DELETE"),
        ("DELETE", "/v1/health", b"GET, HEAD"),
        ("POST", "/docs", b"GET, HEAD"),
    ],
)
async def test_wrong_verbs(world: World, method: str, path: str, allow: bytes) -> None:
    response = await world.request(method, path)
    assert response.status == 405
    assert (b"allow", allow) in response.headers


async def test_compressed_bodies_are_refused(world: World) -> None:
    response = await world.request("POST", "/v1/models", REGISTRATION, content_encoding="gzip")
    assert (response.status, error_of(response)["field"]) == (400, "content-encoding")


async def test_errors_have_the_trace_of_their_request(world: World) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    response = await world.request("GET", "/v1/models/none", traceparent=trace)
    (told,) = [value for name, value in response.headers if name == b"traceparent"]
    assert told.decode().split("-")[1] == trace.split("-")[1]


async def test_health_in_every_phase(world: World) -> None:
    for phase in (Phase.SERVING, Phase.LAME_DUCK, Phase.DRAINING):
        world.health.advance(phase)
        document = json.loads((await world.request("GET", "/v1/health")).body)
        assert document == {"phase": phase.value, "ready": phase is Phase.SERVING}
    assert world.grpc.closing


async def test_an_answer_that_breaks_the_contract_is_a_fault_of_ours(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.batching = {"sessions": 1}
    with caplog.at_level(logging.ERROR):
        response = await world.request("GET", "/v1/batching")
        reply = await world.call("BatchingService/GetBatching", b"")
    assert error_of(response)["code"] == detail_of(reply).code == "internal"
    assert "getBatching breaks the contract" in caplog.text


async def test_a_fault_of_ours_is_an_answer_a_line_of_the_log_and_a_count(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.batching = None  # type: ignore[assignment]
    world.api._store = None  # type: ignore[assignment]
    with caplog.at_level(logging.ERROR):
        assert (await world.request("GET", "/v1/models")).status == 500
        assert (await world.call("ModelService/ListModels", b"")).code is GrpcCode.INTERNAL
    assert "Traceback" in caplog.text
    assert 'reason="internal"' in world.metrics.exposition().decode()


def test_long_texts_of_an_error_fit_into_trailers() -> None:
    reply = error_reply(RequestError(ErrorCode.NOT_FOUND, "m" * 10_000, "model", "a" * 10_000))
    assert sum(len(value) for _, value in reply.trailers) < 3_500


# --- the contract


def test_every_operation_has_a_path_and_a_call(world: World) -> None:
    served = (next(one for one in operations() if one.operation_id == "infer"), *world.api.operations)
    assert sorted(served) == sorted(operations())
    for one in operations():
        assert world.grpc.unary(one.call) is not None
        assert one.service in world.grpc.names
    assert world.grpc.streaming("/mcp2026.v1.InferenceService/Infer") is None


def test_a_path_is_found_by_its_parts() -> None:
    routes = Routes(operations())
    assert routes.find("/v1/models/m") is not None
    for path in ("/v1", "/v1/", "/v1/models/", "/v1/models/m/versions", "/v1/models/m/versions/1/2", "*", ""):
        route = routes.find(path)
        assert route is None or path == "/v1/models/"


async def test_the_document_is_served(world: World) -> None:
    response = await world.request("GET", "/openapi.json")
    assert response.body == document_text()
    assert response.content_type == b"application/json"


class Reader(HTMLParser):
    """Checks that elements are closed, and keeps what the page links to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        given = dict(attrs)
        assert "src" not in given
        self.ids += [str(given["id"])] if "id" in given else []
        self.targets += [str(given["href"])] if "href" in given else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


async def test_the_page_stands_alone_and_shows_everything(world: World) -> None:
    response = await world.request("GET", "/docs")
    assert response.content_type == b"text/html; charset=utf-8"
    assert any(name == b"content-security-policy" for name, _ in response.headers)
    reader = Reader()
    reader.feed(response.body.decode())
    assert reader.open == []
    assert len(set(reader.ids)) == len(reader.ids)
    assert set(reader.targets) <= {"openapi.json", *(f"#{one}" for one in reader.ids)}
    for one in operations():
        assert one.path in reader.text
        assert one.call[1:] in reader.text
    for name, schema in document()["components"]["schemas"].items():
        assert name in reader.ids
        assert all(field in reader.text for field in schema.get("properties", {}))


def test_the_page_shows_code_and_lists_as_people_write_them() -> None:
    text = page(document()).decode()
    assert "`" not in text
    assert "takes <code>input</code> and <code>shape</code>" in text
    assert "[ 0.1, 0.2, 0.3, 0.4 ]" in text
    assert "integer, from 0, up to 100" in text


def test_the_page_escapes_what_it_shows() -> None:
    hostile = {**document(), "info": {**document()["info"], "title": "<script>alert(1)</script>"}}
    assert b"<script>" not in page(hostile)
