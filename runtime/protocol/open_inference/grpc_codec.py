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
from mcp2026.runtime.protocol.open_inference import open_inference_pb2 as messages
from mcp2026.runtime.protocol.open_inference.classification import classify
from mcp2026.runtime.protocol.open_inference.datatypes import Buffer, to_wire
from mcp2026.runtime.protocol.open_inference.json_data import to_array
from mcp2026.runtime.protocol.open_inference.parameters import (
    Parameters,
    RegionPart,
    Value,
    region_part,
    request_parameters,
)
from mcp2026.runtime.protocol.open_inference.requests import (
    Expected,
    InferRequest,
    Limits,
    all_outputs,
    elements,
    expect,
    from_region,
    in_order,
    rows_of,
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
    """One ModelInferRequest, of which only the message was read."""

    __slots__ = ("message", "raw")

    def __init__(self, content: bytes) -> None:
        """Read `content`; raw inputs are views of it.

        Raises:
            RequestError: it is no ModelInferRequest.

        """
        split = split_request(content)
        try:
            if split is None:
                self.message = messages.ModelInferRequest.FromString(content)
                self.raw = [memoryview(raw) for raw in self.message.raw_input_contents]
            else:
                self.message = messages.ModelInferRequest.FromString(split[0])
                self.raw = split[1]
        except DecodeError as error:
            raise invalid("message", f"cannot be read: {error}", "a ModelInferRequest") from error


def decode_infer(
    inference: Inference,
    metadata: Mapping[bytes, bytes],
    version: LoadedVersion,
    regions: SharedMemoryRegions,
    limits: Limits,
    levels: int,
) -> InferRequest:
    """Return the request, checked against `version`. `levels` is the number of the model's priorities.

    Raises:
        RequestError: it lacks something, or does not fit the model.

    """
    message, raw = inference.message, inference.raw
    parameters = _parameters(message.parameters) if message.parameters else {}
    wanted = request_parameters(parameters, metadata, levels, limits.max_timeout_ns)
    signature = version.signature
    found: dict[str, Array] = {}
    taken = 0
    for tensor in message.inputs:
        name, shape = tensor.name, list(tensor.shape)
        expected = expect(signature, name, tensor.datatype, shape)
        if name in found:
            raise invalid("inputs", f"{name!r} is named twice", "each input once")
        field = f"inputs.{name}"
        part = _part(tensor.parameters, regions, field, limits)
        if part is not None:
            flat = from_region(part, expected, field)
        elif raw:
            if taken == len(raw):
                raise invalid("raw_input_contents", f"has {taken} tensors", "one for each input")
            flat = elements(raw[taken], expected, field)
            taken += 1
        else:
            flat = _typed(tensor.contents, expected, field)
        if tensor.HasField("contents") and (raw or part is not None):
            raise invalid(f"{field}.contents", "stands beside raw or shared contents", "one of the three")
        found[name] = flat.reshape(shape)
    if taken != len(raw):
        raise invalid("raw_input_contents", f"has {len(raw)} tensors", f"{taken}, one for each input")
    inputs = in_order(signature, found)
    if message.outputs:
        named = [
            (output.name, _parameters(output.parameters) if output.parameters else {})
            for output in message.outputs
        ]
        outputs = wanted_outputs(signature, named, regions, limits, binary=True)
    else:
        outputs = all_outputs(signature, binary=True)
    return InferRequest(version, inputs, rows_of(version, inputs), outputs, message.id, wanted)


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


def _typed(contents: Any, expected: Expected, field: str) -> Array:
    name = _CONTENTS[expected.datatype.name]
    values = list(getattr(contents, name))
    if len(values) != expected.elements:
        problem = f"holds {len(values)} values"
        raise invalid(f"{field}.contents.{name}", problem, f"{expected.elements} values, or raw contents")
    return to_array(expected.datatype, values, f"{field}.contents.{name}")
