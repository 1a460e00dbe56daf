"""What is generated is what the contract gives, and a contract that breaks a rule is refused by name."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.contract.field_numbers import check_numbers, numbers_in
from tools.contract.generate import FOLDER, drift, generate
from tools.contract.proto import proto_of
from tools.contract.source import SOURCE, SourceError, source_of

Document = dict[str, Any]
Change = Callable[[Document], None]


@pytest.fixture(scope="module")
def original() -> Document:
    read: Document = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    return read


@pytest.fixture
def contract(original: Document) -> Document:
    return copy.deepcopy(original)


def test_generating_again_changes_nothing() -> None:
    assert drift() == [], "run `make generate`"


def test_a_change_of_the_source_is_seen(contract: Document, tmp_path: Path) -> None:
    contract["components"]["schemas"]["Health"]["properties"]["since"] = {
        "type": "integer",
        "x-proto-field": 3,
    }
    changed = [
        path.name
        for path in generate(tmp_path, source_of(contract))
        if path.read_bytes() != (FOLDER / path.name).read_bytes()
    ]
    assert changed == ["native.proto", "native_pb2.py", "native_pb2.pyi", "openapi.json"]
    assert "  optional int64 since = 3;\n" in (tmp_path / "native.proto").read_text(encoding="utf-8")


def test_a_description_is_no_change_of_the_wire(contract: Document, tmp_path: Path) -> None:
    contract["components"]["schemas"]["Health"]["description"] = "Something else."
    made = {path.name: path.read_bytes() for path in generate(tmp_path, source_of(contract))}
    assert made["native_pb2.py"] == (FOLDER / "native_pb2.py").read_bytes()


def _schema(name: str, change: Callable[[Document], None]) -> Change:
    return lambda contract: change(contract["components"]["schemas"][name])


def _operation(path: str, verb: str, change: Callable[[Document], None]) -> Change:
    return lambda contract: change(contract["paths"][path][verb])


def _property(name: str, part: str, **values: object) -> Change:
    return _schema(name, lambda schema: schema["properties"][part].update(values))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(
            _operation("/v1/infer", "post", lambda one: one.pop("x-grpc-service")),
            "POST /v1/infer: x-grpc-service is missing",
            id="no service",
        ),
        pytest.param(
            _operation("/v1/models", "get", lambda one: one.pop("x-grpc-method")),
            "GET /v1/models: x-grpc-method is missing",
            id="no method",
        ),
        pytest.param(
            _operation("/v1/models", "get", lambda one: one.pop("x-grpc-request")),
            "GET /v1/models: x-grpc-request is missing",
            id="no request",
        ),
        pytest.param(
            _operation("/v1/models", "get", lambda one: one.update({"x-grpc-method": "DescribeModel"})),
            "two operations are ModelService.DescribeModel",
            id="a method twice",
        ),
        pytest.param(
            _operation("/v1/health", "get", lambda one: one["responses"].pop("200")),
            "GET /v1/health: has 0 responses of success",
            id="no success",
        ),
        pytest.param(
            _schema("Health", lambda schema: schema["properties"]["ready"].pop("x-proto-field")),
            "Health.ready: x-proto-field None is no number",
            id="no number",
        ),
        pytest.param(
            _property("Health", "ready", **{"x-proto-field": 19_500}),
            "Health.ready: x-proto-field 19500 is no number",
            id="a number of protobuf's own",
        ),
        pytest.param(
            _property("Health", "ready", **{"x-proto-field": 1}),
            "Health.ready: 1 is the number of phase already",
            id="a number twice",
        ),
        pytest.param(
            _schema("Health", lambda schema: schema.update({"x-proto-reserved": [2]})),
            "Health.ready: 2 is the number of x-proto-reserved already",
            id="a reserved number",
        ),
        pytest.param(
            _schema("Health", lambda schema: schema.pop("additionalProperties")),
            "Health: additionalProperties is not false",
            id="open to anything",
        ),
        pytest.param(
            _property("Health", "ready", type=["boolean", "null"]),
            "Health.ready: type ['boolean', 'null'] has no type in a proto",
            id="a type that protos have not",
        ),
        pytest.param(lambda contract: contract.pop("info"), "is no OpenAPI 3.1", id="no OpenAPI"),
        pytest.param(
            lambda contract: contract.update({"x-grpc-error": "Missing"}),
            "components.schemas.Missing is not there",
            id="no error",
        ),
    ],
)
def test_a_source_that_breaks_a_rule_is_refused(contract: Document, change: Change, words: str) -> None:
    change(contract)
    with pytest.raises(SourceError) as caught:
        proto_of(source_of(contract))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(
            _property("Health", "ready", **{"x-proto-field": 3}),
            "Health: the number 2 was 'ready' and is neither used nor in x-proto-reserved",
            id="another number",
        ),
        pytest.param(
            _schema("Health", lambda schema: schema["properties"].pop("phase")),
            "Health: the number 1 was 'phase' and is neither used nor in x-proto-reserved",
            id="a field that is gone",
        ),
        pytest.param(
            _schema(
                "Health",
                lambda schema: schema["properties"].update(state=schema["properties"].pop("phase")),
            ),
            "Health: the number 1 was 'phase' and is 'state' now",
            id="a number used again",
        ),
    ],
)
def test_a_number_keeps_its_meaning(contract: Document, tmp_path: Path, change: Change, words: str) -> None:
    change(contract)
    for schema in contract["components"]["schemas"].values():  # what is required must be there
        schema["required"] = [name for name in schema.get("required", []) if name in schema["properties"]]
    with pytest.raises(SourceError) as caught:
        generate(tmp_path, source_of(contract))
    assert words in str(caught.value)


def test_a_field_may_go_if_its_number_stays(original: Document, contract: Document) -> None:
    health = contract["components"]["schemas"]["Health"]
    del health["properties"]["phase"]
    health |= {"x-proto-reserved": [1], "required": ["ready"]}
    before, now = (numbers_in(proto_of(source_of(one))) for one in (original, contract))
    assert now["Health"] == {1: "", 2: "ready"}
    check_numbers(before, now)
    with pytest.raises(SourceError, match="the number 1 was reserved and is 'phase' now"):
        check_numbers(now, before)
