"""One table of good and bad messages over both real ports: refused alike, with the same error."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import grpc
import numpy as np
import pytest

from mcp2026.api.contract.messages import document_of, message_class, message_of
from mcp2026.api.contract.rpc_status import decode_status
from mcp2026.api.contract.validation import check
from mcp2026.runtime.errors import STATUS, ErrorCode
from mcp2026.runtime.protocol.native.operations import Operation, operations
from tests.contract.runtime.messages_of_the_contract import FLAT, REQUESTS, WIRE, AsMessage, Row, WireRow
from tests.contract.runtime.server_process import PATIENCE, Server

BY_REQUEST = {operation.request: operation for operation in operations()}
INFERENCE = BY_REQUEST["InferRequest"]


class Outcome(NamedTuple):
    """What a caller gets, over either transport."""

    status: int | grpc.StatusCode
    error: dict[str, Any] | None
    answer: Any
    """The document of a good answer."""


class World:
    """A server whose callers may change nothing, and a caller over both transports."""

    def __init__(self, server: Server, channel: grpc.Channel) -> None:
        self.server = server
        self.channel = channel

    def over_http(self, operation: Operation, document: Any) -> Outcome:
        if operation.has_body:
            reply = self.server.request(operation.verb, operation.path, json.dumps(document).encode())
        else:
            path = operation.path.format(**{name: quote(value, "") for name, value in document.items()})
            reply = self.server.request(operation.verb, path)
        if reply.status == operation.status:
            check(operation.response, reply.json)
            return Outcome(reply.status, None, reply.json)
        check("ErrorResponse", reply.json)
        return Outcome(reply.status, reply.error, None)

    def over_grpc(self, operation: Operation, content: bytes) -> Outcome:
        call = self.channel.unary_unary(operation.call)
        try:
            answer = message_class(operation.response).FromString(call(content, timeout=PATIENCE))
        except grpc.RpcError as error:
            return Outcome(error.code(), _told(error), None)
        document = document_of(answer, answer=True)
        check(operation.response, document)
        return Outcome(grpc.StatusCode.OK, None, document)


@pytest.fixture(scope="module")
def world(shared: Callable[[str], Server]) -> Iterator[World]:
    server = shared("add")
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        yield World(server, channel)


def _told(error: Any) -> dict[str, Any]:
    """Return the error that a failed call carries, as REST would put it."""
    detail = decode_status(dict(error.trailing_metadata())["grpc-status-details-bin"])
    assert detail is not None
    assert detail.message == error.details()
    told = {name: value for name, value in detail._asdict().items() if value is not None}
    check("Error", told)
    return told


def _as_float32(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with the numbers that its type has: JSON has their fewest digits."""
    named = {name: _as_float32(tensor) for name, tensor in answer.get("outputs", {}).items()}
    numbers = {name: np.float32(answer[name]).tolist() for name in ("output", "data") if name in answer}
    return {**answer, **numbers, **({"outputs": named} if named else {})}


def by_name(row: Row | WireRow) -> str:
    return f"{row.schema}: {row.name}"


def http_can_say(row: Row) -> bool:
    """Return whether REST has a place for all of the document: the body, or the path."""
    operation = BY_REQUEST[row.schema]
    places = [step[1:-1] for step in operation.path.split("/") if step.startswith("{")]
    return operation.has_body or (isinstance(row.document, dict) and set(places) == set(row.document))


@pytest.mark.parametrize("row", REQUESTS, ids=by_name)
def test_a_message_gets_the_same_over_both(world: World, row: Row) -> None:
    operation = BY_REQUEST[row.schema]
    told = []
    if http_can_say(row):
        told.append(world.over_http(operation, row.document))
    if row.as_message is AsMessage.SAME:
        content = message_of(row.schema, row.document).SerializeToString()
        told.append(world.over_grpc(operation, content))
    for outcome in told:
        if not row.good:
            assert outcome.status in (400, grpc.StatusCode.INVALID_ARGUMENT)
            assert outcome.error is not None
            assert (outcome.error["field"], outcome.error["rule"]) == (row.field, row.rule)
        if outcome.error is not None:
            status = STATUS[ErrorCode(outcome.error["code"])]
            assert outcome.status in (status.http, grpc.StatusCode[status.grpc])
            assert outcome.error == told[0].error
        else:
            assert outcome.answer == told[0].answer or row.schema == "InferRequest"


@pytest.mark.parametrize("row", WIRE, ids=by_name)
def test_what_only_a_message_can_say_is_refused(world: World, row: WireRow) -> None:
    outcome = world.over_grpc(BY_REQUEST[row.schema], row.content)
    assert outcome.status is grpc.StatusCode.INVALID_ARGUMENT
    assert outcome.error is not None
    assert (outcome.error["field"], outcome.error["rule"]) == (row.field, row.rule)


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({**FLAT, "model": "other"}, "not_found"),
        ({**FLAT, "version_id": "other"}, "not_found"),
        ({**FLAT, "shape": [1, 17]}, "invalid_argument"),
        ({**FLAT, "shape": [2, 16]}, "invalid_argument"),
        ({**FLAT, "input": ["a"] * 16}, "invalid_argument"),
        ({**FLAT, "input": [1e39] * 16}, "invalid_argument"),
        ({**FLAT, "outputs": ["other"]}, "invalid_argument"),
        ({**FLAT, "timeout_ms": 1e9}, "invalid_argument"),
        ({"inputs": {"other": {"data": [0.5], "shape": [1]}}}, "invalid_argument"),
    ],
)
def test_what_does_not_fit_the_model_gets_the_same_over_both(
    world: World, document: dict[str, Any], code: str
) -> None:
    over_http = world.over_http(INFERENCE, document)
    content = message_of("InferRequest", document).SerializeToString()
    over_grpc = world.over_grpc(INFERENCE, content)
    assert over_http.error == over_grpc.error
    assert over_http.error is not None
    assert over_http.error["code"] == code


@pytest.mark.parametrize(
    "more", [{}, {"id": "request-17"}, {"outputs": ["output"]}, {"model": "add", "version_id": "1"}]
)
def test_inference_answers_the_same_numbers_over_both(world: World, more: dict[str, Any]) -> None:
    for document in (
        {"input": [0.1] * 16, "shape": [1, 16], **more},
        {"inputs": {"input": {"data": [0.1] * 16, "shape": [1, 16]}}, **more},
    ):
        over_http = world.over_http(INFERENCE, document).answer
        content = message_of("InferRequest", document).SerializeToString()
        over_grpc = world.over_grpc(INFERENCE, content).answer
        assert _as_float32(over_http) == _as_float32(over_grpc)


def test_labels_of_scheduling_are_refused_alike(world: World) -> None:
    reply = world.server.request("POST", "/v1/infer", FLAT, {"x-mcp-priority": "200"})
    call = world.channel.unary_unary(INFERENCE.call)
    content = message_of("InferRequest", FLAT).SerializeToString()
    with pytest.raises(grpc.RpcError) as caught:
        call(content, timeout=PATIENCE, metadata=(("x-mcp-priority", "200"),))
    assert reply.error == _told(caught.value)


@pytest.mark.parametrize("path", ["/nothing", "/v1/nothing", "/v1/models/add/versions"])
def test_bodies_of_other_refusals_follow_the_contract_too(world: World, path: str) -> None:
    missing = world.server.request("GET", path)
    wrong = world.server.request("PATCH", "/v1/models")
    assert (missing.status, wrong.status) == (404, 405)
    for reply in (missing, wrong):
        check("ErrorResponse", reply.json)
