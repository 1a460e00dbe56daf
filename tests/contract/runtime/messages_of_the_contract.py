"""One table of good and bad messages of the native API, for everything that checks them: the validator, the
check of inference, and the real ports of REST and gRPC.

A row is a document by the name of its schema. What is wrong with it is a field and a rule, the same whichever
way it comes in.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

Document = dict[str, Any]


class AsMessage(Enum):
    """What becomes of a document on its way through protobuf."""

    SAME = "the message says what the document says"
    REFUSED = "no message can say this: it is refused where the message is made"
    LOST = "the message says less: protobuf does not tell an empty list or map from a missing one"


@dataclass(frozen=True)
class Row:
    """One document, and what is wrong with it."""

    name: str
    schema: str
    document: Any
    field: str = ""
    rule: str = ""
    """Both empty: nothing is wrong."""
    as_message: AsMessage = AsMessage.SAME

    @property
    def good(self) -> bool:
        """The contract has nothing against it."""
        return not self.rule


@dataclass(frozen=True)
class WireRow:
    """A message that no document stands for."""

    name: str
    schema: str
    content: bytes
    field: str
    rule: str


REGISTRATION: Document = {
    "request_id": "6f1c3f0e-5d0b-4f3a-9d0e-6c1b6f1e2a10",
    "model": "add",
    "version_id": "v2",
    "uri": "pvc://models/add-2.onnx",
    "weight": 10,
    "owner_email": "vision@example.com",
}
FLAT: Document = {"input": [0.5] * 16, "shape": [1, 16]}
"""Fits the model `add`."""
NAMED: Document = {"inputs": {"input": {"data": [0.5] * 16, "shape": [1, 16]}}}
_REFUSED, _LOST = AsMessage.REFUSED, AsMessage.LOST


def _registration(
    name: str, field: str, value: object, rule: str = "", how: AsMessage = AsMessage.SAME
) -> Row:
    return Row(
        name, "RegisterVersionRequest", {**REGISTRATION, field: value}, field if rule else "", rule, how
    )


def _flat(
    name: str, member: str, value: object, field: str = "", rule: str = "", how: AsMessage = AsMessage.SAME
) -> Row:
    return Row(name, "InferRequest", {**FLAT, member: value}, field, rule, how)


def _tensor(name: str, tensor: object, field: str, rule: str, how: AsMessage = AsMessage.SAME) -> Row:
    return Row(name, "InferRequest", {"inputs": {"input": tensor}}, field, rule, how)


def _without(document: Document, name: str) -> Document:
    return {key: value for key, value in document.items() if key != name}


_REGISTRATION_ROWS = (
    Row("a registration", "RegisterVersionRequest", REGISTRATION),
    _registration("no traffic yet", "weight", 0),
    _registration("all traffic", "weight", 100),
    _registration("a UUID in capitals", "request_id", "6F1C3F0E-5D0B-4F3A-9D0E-6C1B6F1E2A10"),
    _registration("a file", "uri", "file:///models/add.onnx"),
    _registration("an address with a plus", "owner_email", "vision+models@mail.example.com"),
    *(
        Row(f"no {name}", "RegisterVersionRequest", _without(REGISTRATION, name), name, "required")
        for name in REGISTRATION
    ),
    Row("nothing at all", "RegisterVersionRequest", {}, "model", "required"),
    _registration("a UUID without dashes", "request_id", "6f1c3f0e5d0b4f3a9d0e6c1b6f1e2a10", "format"),
    _registration("an empty UUID", "request_id", "", "format"),
    _registration("an address without a domain", "owner_email", "vision", "format"),
    _registration("an empty address", "owner_email", "", "format"),
    _registration("an address with a blank", "owner_email", "vi sion@example.com", "format"),
    _registration("two addresses", "owner_email", "a@example.com, b@example.com", "format"),
    _registration("an address that is too long", "owner_email", "a@" + "b" * 250 + ".com", "maxLength"),
    _registration("a weight below 0", "weight", -1, "minimum"),
    _registration("a weight above 100", "weight", 101, "maximum"),
    _registration("a weight that no int64 holds", "weight", 10**30, "maximum", _REFUSED),
    _registration("half a percent", "weight", 0.5, "type", _REFUSED),
    _registration("a weight as a text", "weight", "10", "type", _REFUSED),
    _registration("a weight as a boolean", "weight", True, "type", _REFUSED),
    _registration("a weight of null", "weight", None, "type", _REFUSED),
    _registration("an empty name", "model", "", "minLength"),
    _registration("a long name", "model", "m" * 254, "maxLength"),
    _registration("a version with a slash", "version_id", "v/2", "pattern"),
    _registration("an empty version", "version_id", "", "pattern"),
    _registration("a long version", "version_id", "v" * 64, "maxLength"),
    _registration("another scheme", "uri", "https://example.com/add.onnx", "pattern"),
    _registration("a path that is not absolute", "uri", "file://add.onnx", "pattern"),
    _registration("a URI with a blank", "uri", "pvc://models/a b.onnx", "format"),
    _registration("an unknown field", "wieght", 10, "additionalProperties", _REFUSED),
    Row("a list for a body", "RegisterVersionRequest", [], "body", "type", _REFUSED),
    Row(
        "an unknown field goes before all else",
        "RegisterVersionRequest",
        {"zzz": 1, "weight": 101},
        "zzz",
        "additionalProperties",
        _REFUSED,
    ),
    Row(
        "of two fields the first by name",
        "RegisterVersionRequest",
        {**REGISTRATION, "request_id": "x", "owner_email": "x"},
        "owner_email",
        "format",
    ),
)

_INFERENCE_ROWS = (
    Row("one input", "InferRequest", FLAT),
    Row("named inputs", "InferRequest", NAMED),
    _flat("a model and a version", "model", "add"),
    _flat("a deadline", "timeout_ms", 250),
    _flat("an id", "id", "request-17"),
    _flat("an empty id", "id", ""),
    _flat("whole numbers", "input", [1] * 16),
    Row("no shape", "InferRequest", {"input": [0.5]}, "shape", "required"),
    Row("no input", "InferRequest", {"shape": [1]}, "input", "required"),
    Row("an empty body", "InferRequest", {}, "input", "required"),
    Row("both forms", "InferRequest", {**FLAT, **NAMED}, "input", "not"),
    Row("a shape beside inputs", "InferRequest", {"shape": [1, 16], **NAMED}, "shape", "not"),
    Row("inputs without one", "InferRequest", {"inputs": {}}, "inputs", "minProperties", _LOST),
    Row(
        "an input without a name",
        "InferRequest",
        {"inputs": {"": {"data": [0.5], "shape": [1]}}},
        "inputs",
        "propertyNames",
    ),
    _tensor("an input without data", {"shape": [1, 16]}, "inputs.input.data", "required"),
    _tensor("an input without a shape", {"data": [0.5]}, "inputs.input.shape", "required"),
    _tensor("an empty input", {}, "inputs.input.data", "required"),
    _tensor("an input of null", None, "inputs.input", "type", _REFUSED),
    _tensor(
        "an unknown field of an input",
        {**NAMED["inputs"]["input"], "dtype": "float32"},
        "inputs.input.dtype",
        "additionalProperties",
        _REFUSED,
    ),
    _tensor("a size of 0", {"data": [], "shape": [0, 16]}, "inputs.input.shape[0]", "minimum"),
    _flat("a negative size", "shape", [1, -16], "shape[1]", "minimum"),
    _flat("an absurd size", "shape", [2**40 + 1], "shape[0]", "maximum"),
    _flat("a size that no int64 holds", "shape", [10**30], "shape[0]", "maximum", _REFUSED),
    _flat("33 dimensions", "shape", [1] * 33, "shape", "maxItems"),
    _flat("half a size", "shape", [1, 1.5], "shape[1]", "type", _REFUSED),
    _flat("a shape that is no list", "shape", 16, "shape", "type", _REFUSED),
    _flat("null among the values", "input", [0.5, None], "input[1]", "type", _REFUSED),
    _flat("a list among the values", "input", [[0.5]], "input[0]", "type", _REFUSED),
    _flat("a value that is no list", "input", 0.5, "input", "type", _REFUSED),
    _flat("no time", "timeout_ms", 0, "timeout_ms", "exclusiveMinimum"),
    _flat("negative time", "timeout_ms", -2.5, "timeout_ms", "exclusiveMinimum"),
    _flat("more than an hour", "timeout_ms", 3_600_001, "timeout_ms", "maximum"),
    _flat("time as a text", "timeout_ms", "250", "timeout_ms", "type", _REFUSED),
    _flat("no outputs", "outputs", [], "outputs", "minItems", _LOST),
    _flat("an output twice", "outputs", ["y", "y"], "outputs", "uniqueItems"),
    _flat("an output that is no text", "outputs", ["y", 1], "outputs[1]", "type", _REFUSED),
    _flat("an id that is no text", "id", 17, "id", "type", _REFUSED),
    _flat("an id of null", "id", None, "id", "type", _REFUSED),
    _flat("an unknown field", "imput", [], "imput", "additionalProperties", _REFUSED),
)

_OTHER_ROWS = (
    Row("list all", "ListModelsRequest", {}),
    Row("list some", "ListModelsRequest", {"limit": 1}, "limit", "additionalProperties", _REFUSED),
    Row("describe one", "DescribeModelRequest", {"model": "add"}),
    Row("describe nothing", "DescribeModelRequest", {}, "model", "required"),
    Row("describe a long name", "DescribeModelRequest", {"model": "m" * 254}, "model", "maxLength"),
    Row("retire one", "RetireVersionRequest", {"model": "add", "version_id": "v2"}),
    Row("retire no version", "RetireVersionRequest", {"model": "add"}, "version_id", "required"),
    Row(
        "retire a long version",
        "RetireVersionRequest",
        {"model": "add", "version_id": "v" * 254},
        "version_id",
        "maxLength",
    ),
    Row("ask for batching", "GetBatchingRequest", {}),
    Row("ask for health", "GetHealthRequest", {}),
)

REQUESTS = (*_REGISTRATION_ROWS, *_INFERENCE_ROWS, *_OTHER_ROWS)

_ANSWER: Document = {"model": "add", "version_id": "1", "output": [0.5], "shape": [1], "dtype": "float32"}

ANSWERS = (
    Row("one output", "InferResponse", _ANSWER),
    Row("a single value", "InferResponse", {**_ANSWER, "shape": []}),
    Row("numbers that JSON has none for", "InferResponse", {**_ANSWER, "output": [0.5, "NaN", "-Infinity"]}),
    Row("only such", "InferResponse", {**_ANSWER, "output": ["Infinity"]}),
    Row("texts", "InferResponse", {**_ANSWER, "output": ["NaN"], "dtype": "string"}),
    Row("an unknown type", "InferResponse", {**_ANSWER, "dtype": "float128"}, "dtype", "enum"),
    Row("no type", "InferResponse", _without(_ANSWER, "dtype"), "dtype", "required"),
    Row("no version", "InferResponse", _without(_ANSWER, "version_id"), "version_id", "required"),
    Row("serving", "Health", {"phase": "serving", "ready": True}),
    Row("another phase", "Health", {"phase": "asleep", "ready": False}, "phase", "enum"),
    Row("no models", "ModelList", {"models": []}),
    Row(
        "more than all traffic",
        "RegisteredVersion",
        {
            "request_id": REGISTRATION["request_id"],
            "model": "add",
            "version_id": "v2",
            "weight": 101,
            "revision": 2,
        },
        "weight",
        "maximum",
    ),
    Row("an error", "Error", {"code": "not_found", "message": "no model"}),
    Row("an unknown code", "Error", {"code": "teapot", "message": ""}, "code", "enum"),
)

_NAN = bytes.fromhex("000000000000f87f")
WIRE = (
    WireRow("a number of no field", "RegisterVersionRequest", b"\x98\x06\x01", "#99", "additionalProperties"),
    WireRow(
        "the number of weight as a text", "RegisterVersionRequest", b"\x2a\x011", "#5", "additionalProperties"
    ),
    WireRow(
        "a number of no field, deep",
        "InferRequest",
        b"\x1a\x03\x98\x06\x01",
        "input.#99",
        "additionalProperties",
    ),
    WireRow("NaN among the values", "InferRequest", b"\x1a\x0a\x0a\x08" + _NAN, "input[0]", "type"),
    WireRow("NaN for a time", "InferRequest", b"\x39" + _NAN, "timeout_ms", "type"),
    WireRow("values in two lists", "InferRequest", b"\x1a\x06\x12\x01\x01\x22\x01\x01", "input", "type"),
)
"""Messages in bytes, which libraries for protobuf would not write."""
