"""Inference over gRPC: a ModelInferRequest is read, a ModelInferResponse is written.

Inputs come as typed contents or as raw bytes, as the client likes; outputs are always raw, which is what
`tritonclient` reads.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError

from mcp2026.runtime.errors import invalid
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.loaded import LoadedVersion
from mcp2026.runtime.model.signature import Signature
from mcp2026.runtime.protocol.open_inference import open_inference_pb2 as messages
from mcp2026.runtime.protocol.open_inference.classification import classify
from mcp2026.runtime.protocol.open_inference.datatypes import Buffer, to_wire
from mcp2026.runtime.protocol.open_inference.json_data import to_array
from mcp2026.runtime.protocol.open_inference.parameters import (
    Parameters,
    RegionPart,
    Value,
    region_part,
)
from mcp2026.runtime.protocol.open_inference.questions import (
    KnownQuestions,
    Question,
    Source,
    ask,
    question,
)
from mcp2026.runtime.protocol.open_inference.requests import (
    Expected,
    InferRequest,
    Limits,
    all_outputs,
    check_text,
    expect,
    from_region,
    to_region,
    wanted_outputs,
)
from mcp2026.runtime.protocol.open_inference.wire import RAW_OUTPUTS, bytes_field, split_request
from mcp2026.runtime.shared_memory.regions import SharedMemoryRegions

_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP16": "fp32_contents",
    "BF16": "fp32_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Where typed values of each datatype are; for FP16 and BF16 the protocol names none."""


class Inference:
    """One ModelInferRequest, of which only the message was read: what it asks, and its raw inputs."""

    __slots__ = ("_message", "head", "id", "raw")

    def __init__(self, content: bytes) -> None:
        """Find the parts of `content`; raw inputs are views of it.

        Raises:
            RequestError: it is no ModelInferRequest.

        """
        split = split_request(content)
        self._message: messages.ModelInferRequest | None = None
        if split is not None:
            self.head, request_id, self.raw = split
            try:
                self.id = request_id.decode()
            except UnicodeDecodeError as error:
                raise invalid("id", "is not UTF-8", "a text") from error
            return
        message = _read(content)
        self.id = message.id
        self.raw = [memoryview(raw) for raw in message.raw_input_contents]
        message.ClearField("id")
        message.ClearField("raw_input_contents")
        self.head = message.SerializeToString()

    @property
    def message(self) -> messages.ModelInferRequest:
        """The request without its id and its raw inputs.

        Raises:
            RequestError: it is no ModelInferRequest.

        """
        if self._message is None:
            self._message = _read(self.head)
        return self._message


def decode_infer(
    inference: Inference,
    metadata: Mapping[bytes, bytes],
    version: LoadedVersion,
    regions: SharedMemoryRegions,
    limits: Limits,
    levels: int,
    known: KnownQuestions,
) -> InferRequest:
    """Return the request, checked against `version`. `levels` is the number of the model's priorities.

    Raises:
        RequestError: it lacks something, or does not fit the model.

    """
    raw = inference.raw
    # With and without raw inputs, the same bytes say where a tensor is in different ways.
    asked = known.find(version, inference.head) if raw else None
    if asked is None:
        asked = _question(inference, version, regions, limits)
        if raw:
            known.keep(version, inference.head, asked)
    needed = sum([source.elsewhere is None for source in asked.sources])
    if needed != len(raw):
        raise invalid("raw_input_contents", f"has {len(raw)} tensors", f"{needed}, one for each input")
    return ask(asked, version, iter(raw), metadata, limits, levels, inference.id)


def encode_infer(request: InferRequest, outputs: list[Array], *, final: bool = False) -> list[Buffer]:
    """Return the parts of the ModelInferResponse; `outputs` are all the model's.

    The parts are views of the outputs and have to be joined before these are given back. `final` marks the
    last answer to a request of a stream, as every answer here is.

    Raises:
        RequestError: an output cannot be put where or how the request wants it.

    """
    version = request.version
    message = messages.ModelInferResponse(
        model_name=version.model, model_version=version.version_id, id=request.id
    )
    if final:
        message.parameters["triton_final_response"].bool_param = True
    raw: list[Buffer] = []
    for wanted in request.outputs:
        array, datatype = outputs[wanted.place], wanted.spec.datatype
        if wanted.classes:
            rows = version.max_rows is not None
            array = classify(datatype, array, wanted.classes, f"outputs.{wanted.spec.name}", rows=rows)
            datatype = "BYTES"
        tensor = message.outputs.add(name=wanted.spec.name, datatype=datatype, shape=array.shape)
        parts = to_wire(datatype, array)
        if wanted.part is not None:
            for name, value in to_region(wanted, parts).items():
                parameter = tensor.parameters[name]
                if isinstance(value, str):
                    parameter.string_param = value
                else:
                    parameter.int64_param = int(value)
            parts = []
        raw += bytes_field(RAW_OUTPUTS, parts)
    return [message.SerializeToString(), *raw]


def _parameters(parameters: Mapping[str, Any]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, parameter in parameters.items():
        choice = parameter.WhichOneof("parameter_choice")
        if choice is None:
            raise invalid(f"parameters.{name[:64]}", "has no value", "a bool, number or string")
        found[name] = getattr(parameter, choice)
    return found


def _part(
    parameters: Mapping[str, Any], regions: SharedMemoryRegions, field: str, limits: Limits
) -> RegionPart | None:
    if not parameters:
        return None
    read: Parameters = _parameters(parameters)
    return region_part(read, regions, field, limits.max_tensor_bytes)


def _question(
    inference: Inference, version: LoadedVersion, regions: SharedMemoryRegions, limits: Limits
) -> Question:
    message, signature = inference.message, version.signature
    parameters = _parameters(message.parameters) if message.parameters else {}
    sources = [
        _source(tensor, signature, regions, limits, raw=bool(inference.raw)) for tensor in message.inputs
    ]
    if message.outputs:
        named = [
            (output.name, _parameters(output.parameters) if output.parameters else {})
            for output in message.outputs
        ]
        outputs = wanted_outputs(signature, named, regions, limits, binary=True)
    else:
        outputs = all_outputs(signature, binary=True)
    return question(version, parameters, sources, outputs, "")


def _source(
    tensor: Any, signature: Signature, regions: SharedMemoryRegions, limits: Limits, *, raw: bool
) -> Source:
    shape = tuple(tensor.shape)
    expected = expect(signature, tensor.name, tensor.datatype, shape)
    field = f"inputs.{tensor.name}"
    part = _part(tensor.parameters, regions, field, limits)
    if tensor.HasField("contents") and (raw or part is not None):
        raise invalid(f"{field}.contents", "stands beside raw or shared contents", "one of the three")
    if part is not None:
        return Source(expected, shape, field, lambda: from_region(part, expected, field))
    if raw:
        return Source(expected, shape, field)
    contents = tensor.contents
    return Source(expected, shape, field, lambda: _typed(contents, expected, field))


def _read(content: bytes) -> messages.ModelInferRequest:
    try:
        return messages.ModelInferRequest.FromString(content)
    except DecodeError as error:
        raise invalid("message", f"cannot be read: {error}", "a ModelInferRequest") from error


def _typed(contents: Any, expected: Expected, field: str) -> Array:
    name = _CONTENTS[expected.datatype.name]
    values = list(getattr(contents, name))
    if len(values) != expected.elements:
        problem = f"holds {len(values)} values"
        raise invalid(f"{field}.contents.{name}", problem, f"{expected.elements} values, or raw contents")
    array = to_array(expected.datatype, values, f"{field}.contents.{name}")
    if expected.datatype.name == "BYTES":
        check_text(array, f"{field}.contents.{name}")
    return array
