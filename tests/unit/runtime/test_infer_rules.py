"""The compiled check of inference refuses what the schema of the contract refuses, with the same words."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp2026.api.contract.validation import check
from mcp2026.api.contract.violations import ContractError
from mcp2026.api.serving import Batching, single_version
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.protocol.json_codec import JsonCodec
from mcp2026.runtime.protocol.json_turns import LARGE_BODY, at_once
from tests.unit.api.infer_bodies import BODIES
from tests.unit.runtime.loaded_versions import loaded_model
from tools.models import generate

HOUR_NS = 3_600 * 10**9


def contract_refusal(body: object) -> tuple[str, str, str, str] | None:
    try:
        check("InferRequest", body)
    except ContractError as error:
        return error.field, error.rule, error.message, error.allowed
    return None


def refusal(decode: Callable[[bytes], Any], body: object) -> RequestError | None:
    try:
        decode(json.dumps(body).encode())
    except RequestError as error:
        return error
    return None


def told(error: RequestError) -> tuple[Any, ...]:
    return error.field, error.rule, error.message, error.allowed


@settings(deadline=None, max_examples=300)
@given(BODIES)
@example({"shape": [1.0], "input": [1]})
@example({"shape": [10**400], "input": [10**400]})
@example({"inputs": None, "input": [], "shape": []})
def test_before_any_model_is_looked_at_the_check_and_the_schema_agree(body: object) -> None:
    codec = JsonCodec(ModelStore(), HOUR_NS)
    error = refusal(codec.decode, body)
    assert error is not None
    expected = contract_refusal(body)
    if expected is None:
        assert error.code in (ErrorCode.NOT_READY, ErrorCode.NOT_FOUND)
    else:
        assert error.code is ErrorCode.INVALID_ARGUMENT
        assert told(error) == expected


@pytest.fixture(scope="module")
def codecs(tmp_path_factory: pytest.TempPathFactory) -> list[JsonCodec]:
    folder: Path = tmp_path_factory.mktemp("models")
    made = []
    for name in ("add", "integers", "pair"):
        store = ModelStore()
        store.put(loaded_model(single_version(str(generate(name, folder)), Batching())))
        made.append(JsonCodec(store, HOUR_NS))
    return made


@settings(deadline=None, max_examples=150)
@given(BODIES)
def test_no_model_takes_what_the_schema_refuses(codecs: list[JsonCodec], body: object) -> None:
    expected = contract_refusal(body)
    for codec in codecs:
        for decode in (codec.decode, lambda text, codec=codec: at_once(codec.decode_in_turns(text))):
            error = refusal(decode, body)
            if expected is not None:
                assert error is not None
                assert told(error) == expected
            elif error is not None and error.code is ErrorCode.INVALID_ARGUMENT:
                assert error.field
                assert error.rule
                assert error.allowed


LARGE = [0.5] * 40_000


@pytest.mark.parametrize(
    ("body", "field", "rule"),
    [
        ({"input": [None, *LARGE], "shape": [40_001]}, "input[0]", "type"),
        ({"input": [*LARGE[:20_000], None, *LARGE], "shape": [1]}, "input[20000]", "type"),
        ({"input": [*LARGE, None], "shape": [40_001]}, "input[40000]", "type"),
        ({"inputs": {"a": {"data": [*LARGE, None], "shape": [1]}}}, "inputs.a.data[40000]", "type"),
        ({"inputs": {"a": {"data": LARGE, "shape": [1], "b": 1}}}, "inputs.a.b", "additionalProperties"),
        ({"inputs": {"a": {"data": LARGE}}}, "inputs.a.shape", "required"),
        ({"inputs": {"a": {"data": LARGE, "shape": "1"}}}, "inputs.a.shape", "type"),
        ({"input": LARGE, "shape": [1], "zzz": 1}, "zzz", "additionalProperties"),
        ({"zzz": LARGE, "input": [1], "shape": [1]}, "zzz", "additionalProperties"),
        ({"input": LARGE}, "shape", "required"),
        ({"input": LARGE, "shape": [0.5, 1]}, "shape[0]", "type"),
        ({"input": LARGE, "shape": [1] * 40_000}, "shape", "maxItems"),
        ({"input": LARGE, "shape": [1], "outputs": [0.5]}, "outputs[0]", "type"),
        ({"input": LARGE, "shape": [1], "id": LARGE}, "id", "type"),
        (LARGE, "body", "type"),
    ],
)
def test_a_large_body_is_told_the_same(body: object, field: str, rule: str) -> None:
    assert len(json.dumps(body)) > LARGE_BODY
    codec = JsonCodec(ModelStore(), HOUR_NS)
    error = refusal(lambda text: at_once(codec.decode_in_turns(text)), body)
    assert error is not None
    assert (error.field, error.rule) == (field, rule)
    assert told(error) == contract_refusal(body)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"input": [NaN], "shape": [1]}', "input"),
        (b'{"shape": [1], "input": [1, -Infinity]}', "input"),
        (b'{"input": [1], "shape": [1], "timeout_ms": NaN}', "timeout_ms"),
        (b"", "body"),
        (b'{"input": [1', "body"),
        (b'{"id": "\xff"}', "body"),
    ],
)
def test_what_is_no_json_is_refused_by_that(body: bytes, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        JsonCodec(ModelStore(), HOUR_NS).decode(body)
    assert (caught.value.field, caught.value.rule) == (field, "type")


@pytest.mark.parametrize("body", [b"", b" \r\n"])
def test_an_empty_body_is_called_empty(body: bytes) -> None:
    with pytest.raises(RequestError, match="body: is empty"):
        JsonCodec(ModelStore(), HOUR_NS).decode(body)


def test_a_whole_number_of_a_shape_may_have_a_point(codecs: list[JsonCodec]) -> None:
    request = codecs[0].decode(json.dumps({"input": [0.5] * 16, "shape": [1.0, 16]}).encode())
    np.testing.assert_array_equal(request.inputs[0], np.full((1, 16), 0.5, np.float32))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(width=32), min_size=2, max_size=32).filter(lambda values: len(values) % 2 == 0),
    st.sampled_from([{}, {"id": ""}, {"outputs": None}, {"id": "a", "version_id": "1"}]),
    st.booleans(),
)
def test_every_answer_keeps_the_contract(
    codecs: list[JsonCodec], values: list[float], more: dict[str, Any], named: bool
) -> None:
    codec = codecs[0]
    flat: dict[str, Any] = {"data": [0.5] * 16, "shape": [1, 16]}
    body = {"inputs": {"input": flat}} if named else {"input": flat["data"], "shape": flat["shape"]}
    request = codec.decode(json.dumps(body | {key: value for key, value in more.items() if value}).encode())
    answer = codec.encode(request, [np.array(values, np.float32).reshape(2, -1)])
    check("InferResponse", json.loads(answer))
