"""Whatever a server answers, a caller gets an error of the client, and gets it soon."""

import threading

import numpy as np
import pytest

from mcp2026.client.errors import ClientError, ErrorBody
from mcp2026.client.exchange import HttpResponse, Operation
from mcp2026.client.operations.answers import error_of_text
from mcp2026.client.operations.inference import Inference
from mcp2026.client.operations.models import DescribeModel, ListModels
from mcp2026.client.operations.versions import RegisterVersion, RetireVersion

OPERATIONS: dict[str, Operation[object]] = {
    "infer": Inference({"x": np.zeros(1, np.float32)}, model="m"),
    "describe": DescribeModel("m", None, ()),
    "list": ListModels(()),
    "register": RegisterVersion(
        "m", "v", "file:///m.onnx", weight=1, owner_email="a@example.com", request_id=None, headers=()
    ),
    "retire": RetireVersion("m", "v", ()),
}
HOSTILE = {
    "nothing": b"",
    "no text": b"\xff\xfe",
    "nested lists": b"[" * 200_000,
    "nested objects": b'{"outputs":' * 100_000,
    "nested lists that end": b"[" * 50_000 + b"]" * 50_000,
    "a nested error": b'{"error":' + b"[" * 100_000,
    "a number without end": b'{"revision":' + b"9" * 100_000 + b"}",
    "half a surrogate": b'{"error":"\\ud800"}',
    "a sentence of many ranges": b'{"error":"a: ' + b" (allowed: " * 100_000 + b'"}',
}


@pytest.mark.parametrize("status", [200, 400, 404, 503])
@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_no_body_brings_another_error_than_the_clients(
    operation: Operation[object], body: bytes, status: int
) -> None:
    caught: list[BaseException] = []

    def read() -> None:
        try:
            operation.http_answer(HttpResponse(status, {}, bytearray(body)))
        except BaseException as error:
            caught.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(20)
    assert not reader.is_alive()
    assert isinstance(caught[0], ClientError), caught


@pytest.mark.parametrize("length", ["9" * 5_000, "9" * 100, "-1", "+1", "1_0", "٣", "0x1", " 1", ""])
def test_a_length_that_is_none_is_refused(length: str) -> None:
    response = HttpResponse(200, {"inference-header-content-length": length}, bytearray(b'{"outputs":[]}'))
    with pytest.raises(ClientError, match="inference-header-content-length"):
        OPERATIONS["infer"].http_answer(response)


@pytest.mark.parametrize(
    ("text", "field", "allowed"),
    [
        ("x: is 3 (allowed: 1 to 2)", "x", "1 to 2"),
        ("x[0].y: is 3 (allowed: one (1))", "x[0].y", "one (1)"),
        ("x: a (allowed: b) c (allowed: d)", "x", "d"),
        ("x: a: b\nc (allowed: d\ne)", "x", "d\ne"),
        ("x:  (allowed: y)", "x", "y"),
        ("x: (allowed: y)", None, None),
        ("x: is 3 (allowed: 1", None, None),
        ("x: is 3", None, None),
        ("the queue: is full (allowed: 4)", None, None),
        ("a:b: is 3 (allowed: 4)", None, None),
        (": is 3 (allowed: 4)", None, None),
        ("is full (allowed: 4)", None, None),
        ("", None, None),
    ],
)
def test_field_and_range_of_a_sentence(text: str, field: str | None, allowed: str | None) -> None:
    assert error_of_text(text) == ErrorBody(text, field=field, allowed=allowed)
