"""What servers tell about their models, in the ways of several; what makes no sense is refused."""

import json
from typing import Any

import pytest

from mcp2026.client.errors import ModelNotFoundError, ProtocolError
from mcp2026.client.exchange import GrpcResponse, HttpResponse
from mcp2026.client.open_inference import open_inference_pb2 as messages
from mcp2026.client.operations.models import (
    AskReady,
    DescribeModel,
    ListModels,
    ModelMetadata,
    ModelState,
    TensorMetadata,
)

DESCRIBE = DescribeModel("m", None, ())


def response(document: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(status, {}, bytearray(json.dumps(document).encode()))


@pytest.mark.parametrize(
    ("document", "metadata"),
    [
        (
            {
                "name": "m",
                "versions": ["1"],
                "platform": "p",
                "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
                "outputs": [],
            },
            ModelMetadata("m", ("1",), "p", (TensorMetadata("x", "FP32", (-1, 3)),), ()),
        ),
        (
            {"name": "m", "versions": None, "platform": "", "inputs": [], "outputs": None},  # KServe
            ModelMetadata("m", (), "", (), ()),
        ),
        ({"name": "m", "inputs": [], "outputs": []}, ModelMetadata("m", (), "", (), ())),
    ],
)
def test_a_model_is_described(document: Any, metadata: ModelMetadata) -> None:
    assert DESCRIBE.http_answer(response(document)) == metadata


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"name": "m"},
        {"name": "m", "inputs": [7], "outputs": []},
        {"name": "m", "inputs": [{}], "outputs": []},
    ],
)
def test_a_description_that_makes_no_sense_is_refused(document: Any) -> None:
    with pytest.raises(ProtocolError):
        DESCRIBE.http_answer(response(document))


def test_models_are_listed() -> None:
    listed = ListModels(()).http_answer(
        response([{"name": "m"}, {"name": "n", "version": "2", "state": "READY"}])
    )
    assert listed == [ModelState("m", "", "", ""), ModelState("n", "2", "READY", "")]


@pytest.mark.parametrize("document", [{}, [7], [{}], 7, None])
def test_a_list_that_makes_no_sense_is_refused(document: Any) -> None:
    with pytest.raises(ProtocolError):
        ListModels(()).http_answer(response(document))


def test_a_server_without_a_repository_has_no_list() -> None:
    with pytest.raises(ProtocolError, match="does not know the path"):
        ListModels(()).http_answer(response({"detail": "Not Found"}, 404))
    with pytest.raises(ModelNotFoundError):
        DESCRIBE.http_answer(response({"error": "no model 'm'"}, 404))


@pytest.mark.parametrize(("status", "ready"), [(200, True), (400, False), (404, False), (503, False)])
def test_only_200_is_ready(status: int, ready: bool) -> None:
    assert AskReady(None, None, ()).http_answer(HttpResponse(status, {})) is ready


@pytest.mark.parametrize(
    ("question", "path", "method"),
    [
        (AskReady(None, None, ()), "/v2/health/ready", "ServerReady"),
        (AskReady("a b", None, ()), "/v2/models/a%20b/ready", "ModelReady"),
        (AskReady("m", "2", ()), "/v2/models/m/versions/2/ready", "ModelReady"),
        (DescribeModel("m/n", "2", ()), "/v2/models/m%2Fn/versions/2", "ModelMetadata"),
        (ListModels(()), "/v2/repository/index", "RepositoryIndex"),
    ],
)
def test_questions_have_these_names(question: Any, path: str, method: str) -> None:
    assert question.http_request(1).path == path
    assert question.grpc_request(1).method == f"/inference.GRPCInferenceService/{method}"


def test_both_messages_of_readiness_are_read_alike() -> None:
    for message in (messages.ServerReadyResponse(ready=True), messages.ModelReadyResponse(ready=True)):
        assert AskReady(None, None, ()).grpc_answer(GrpcResponse(message.SerializeToString(), {}))
