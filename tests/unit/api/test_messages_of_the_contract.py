"""What the contract has against a message does not depend on the way it came in."""

import math
from typing import Any

import pytest
from hypothesis import example, given, settings

from mcp2026.api.contract.documents import document
from mcp2026.api.contract.messages import document_of, message_class, message_of
from mcp2026.api.contract.rpc_status import ErrorDetail, decode_status, encode_status
from mcp2026.api.contract.validation import check
from mcp2026.api.contract.violations import RULES, ContractError
from tests.contract.runtime.messages_of_the_contract import ANSWERS, REQUESTS, WIRE, AsMessage, Row, WireRow
from tests.unit.api.infer_bodies import BODIES

ROWS = (*REQUESTS, *ANSWERS)


def by_name(row: Row | WireRow) -> str:
    return f"{row.schema}: {row.name}"


def told(error: ContractError) -> tuple[str, ...]:
    return error.field, error.rule, error.message, error.allowed


def refusal(schema: str, document: object) -> tuple[str, ...] | None:
    try:
        check(schema, document)
    except ContractError as error:
        return told(error)
    return None


@pytest.mark.parametrize("row", ROWS, ids=by_name)
def test_the_validator_tells_field_and_rule(row: Row) -> None:
    found = refusal(row.schema, row.document)
    assert (found is None) == row.good
    if found is not None:
        field, rule, message, allowed = found
        assert (field, rule) == (row.field, row.rule)
        assert message.startswith(f"{field}: ")
        assert allowed


@pytest.mark.parametrize("row", ROWS, ids=by_name)
def test_a_message_is_told_what_its_document_is_told(row: Row) -> None:
    expected = refusal(row.schema, row.document)
    if row.as_message is AsMessage.REFUSED:
        with pytest.raises(ContractError) as caught:
            message_of(row.schema, row.document)
        assert told(caught.value) == expected
        return
    sent = message_of(row.schema, row.document).SerializeToString()
    received = document_of(message_class(row.schema).FromString(sent), answer=row in ANSWERS)
    if row.as_message is AsMessage.SAME:
        assert received == row.document
        assert refusal(row.schema, received) == expected
    else:
        assert received != row.document
        assert refusal(row.schema, received) != expected


ONLY_IN_JSON = (
    "has values of several kinds",
    "holds a number too large for a float64",
    "nan is not accepted",  # its word among numbers, which answers may have
)


def passed_on(schema: str, body: Any) -> tuple[Any, ContractError | None]:
    """Return the document that arrives as a message; or why none does."""
    try:
        sent = message_of(schema, body).SerializeToString()
        return document_of(message_class(schema).FromString(sent)), None
    except ContractError as error:
        return None, error


def in_doubles(value: Any) -> Any:
    """Return `value` with integers that a double may round as doubles: numbers of a message are such."""
    match value:
        case dict():
            return {name: in_doubles(one) for name, one in value.items()}
        case list():
            return [in_doubles(one) for one in value]
        case int() if abs(value) > 2**53:
            return float(value)
        case _:
            return value


@settings(deadline=None, max_examples=200)
@given(BODIES)
@example({"input": [10**30], "shape": [1, 1]})
def test_whatever_a_message_can_say_is_told_the_same(body: Any) -> None:
    expected = refusal("InferRequest", body)
    received, error = passed_on("InferRequest", body)
    if error is not None:
        assert expected is not None or error.problem in ONLY_IN_JSON
    elif in_doubles(received) == in_doubles(body):
        assert refusal("InferRequest", received) == expected
    else:
        assert any(body.get(name) in ([], {}) for name in ("outputs", "inputs"))


@pytest.mark.parametrize("row", WIRE, ids=by_name)
def test_what_no_document_can_say_is_refused(row: WireRow) -> None:
    message = message_class(row.schema).FromString(row.content)
    with pytest.raises(ContractError) as caught:
        document_of(message)
    assert (caught.value.field, caught.value.rule) == (row.field, row.rule)
    assert caught.value.allowed


@pytest.mark.parametrize(
    "values",
    [[], [1, 2], [-(2**63)], [2**63, 1], [2**64], [-1, 2**63], [0.5, 1], [True, False], ["", "a"], ["NaN"]],
    ids=str,
)
def test_values_come_back_as_they_were(values: list[Any]) -> None:
    body = {"input": values, "shape": [len(values) or 1]}
    assert document_of(message_of("InferRequest", body)) == body


@pytest.mark.parametrize("values", [[1, "a"], [True, 1], ["a", False]], ids=str)
def test_values_of_several_kinds_are_no_message(values: list[Any]) -> None:
    with pytest.raises(ContractError) as caught:
        message_of("InferRequest", {"input": values, "shape": [2]})
    assert (caught.value.field, caught.value.rule) == ("input", "type")


def test_infinities_of_answers_are_words_in_json_and_numbers_in_messages() -> None:
    tensor = {"data": ["NaN", 1.5, "Infinity"], "shape": [3], "dtype": "float16"}
    body = {"model": "m", "version_id": "1", "outputs": {"y": tensor}}
    message = message_of("InferResponse", body)
    numbers = list(message.outputs["y"].data.numbers)
    assert math.isnan(numbers[0])
    assert numbers[1:] == [1.5, math.inf]
    assert document_of(message, answer=True) == body


def test_every_example_of_the_document_keeps_the_contract() -> None:
    seen = 0
    components = document()["components"]
    contents = [
        content
        for item in document()["paths"].values()
        for operation in item.values()
        for holder in (operation.get("requestBody", {}), *operation["responses"].values())
        for content in holder.get("content", {}).values()
    ]
    contents += [
        content for holder in components["responses"].values() for content in holder["content"].values()
    ]
    for content in contents:
        schema = content["schema"]["$ref"].rpartition("/")[2]
        given_ones = [one["value"] for one in content.get("examples", {}).values()]
        for one in (*given_ones, *([content["example"]] if "example" in content else [])):
            check(schema, one)
            seen += 1
    assert seen > 15


def test_every_rule_of_the_schemas_has_its_place_in_the_order() -> None:
    rules: set[str] = set()

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            rules.update(key for key in part if not isinstance(part.get("properties"), str))
            for key, inner in part.items():
                if key == "properties":
                    for each in inner.values():
                        walk(each)
                elif key not in ("enum", "required"):
                    walk(inner)

    for schema in document()["components"]["schemas"].values():
        walk(schema)
    told_otherwise = {"if", "then", "else", "$ref", "properties", "items", "description"}
    assert {rule for rule in rules if not rule.startswith("x-")} - told_otherwise <= set(RULES)


@pytest.mark.parametrize(
    "error",
    [
        ErrorDetail("internal", "the server failed"),
        ErrorDetail("invalid_argument", "weight: 101 is out of range", "weight", "maximum", "0 to 100"),
        ErrorDetail("not_found", "", "", None, "a"),
    ],
)
def test_an_error_comes_back_from_its_status(error: ErrorDetail) -> None:
    assert decode_status(encode_status(3, error)) == error


@pytest.mark.parametrize("content", [b"", b"\xff", b"\x08\x03\x12\x01x", b"\x1a\x05\x0a\x03abc"])
def test_a_status_without_our_error_has_none(content: bytes) -> None:
    assert decode_status(content) is None
