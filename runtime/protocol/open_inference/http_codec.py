"""Inference over HTTP: a JSON object, and after it the tensors that are sent as bytes.

`Inference-Header-Content-Length` says where the JSON ends; the tensors follow in the order in which the JSON
names them, without anything between. Without that header the body is JSON alone; with 0 it is the bytes of
the only input. https://github.com/triton-inference-server/server/tree/main/docs/protocol,
extension_binary_data.md.
"""

from collections.abc import Iterator

import msgspec

from mcp2026.runtime.errors import RequestError, invalid
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.loaded import LoadedVersion
from mcp2026.runtime.model.signature import Signature, TensorSpec, count_rows
from mcp2026.runtime.protocol.exchange import Response
from mcp2026.runtime.protocol.open_inference.compression import compress
from mcp2026.runtime.protocol.open_inference.datatypes import DATATYPES, Buffer
from mcp2026.runtime.protocol.open_inference.http_answers import HEADER_LENGTH, HttpAnswers
from mcp2026.runtime.protocol.open_inference.http_plans import HttpPlans
from mcp2026.runtime.protocol.open_inference.json_data import from_json
from mcp2026.runtime.protocol.open_inference.parameters import (
    Value,
    region_part,
    request_parameters,
    truth,
    whole_number,
)
from mcp2026.runtime.protocol.open_inference.questions import Question, Source, ask, question
from mcp2026.runtime.protocol.open_inference.requests import (
    InferRequest,
    Limits,
    all_outputs,
    elements,
    expect,
    wanted_outputs,
)
from mcp2026.runtime.shared_memory.regions import SharedMemoryRegions

_MISSING = msgspec.Raw()
_MAX_DIGITS = 12


class TensorDocument(msgspec.Struct):
    """One input."""

    name: str
    shape: list[int]
    datatype: str
    data: msgspec.Raw = _MISSING
    parameters: dict[str, Value] | None = None


class OutputDocument(msgspec.Struct):
    """One output that is asked for."""

    name: str
    parameters: dict[str, Value] | None = None


class InferDocument(msgspec.Struct):
    """The JSON of an inference request."""

    inputs: list[TensorDocument]
    outputs: list[OutputDocument] | None = None
    id: str = ""
    parameters: dict[str, Value] | None = None


_DOCUMENT = msgspec.json.Decoder(InferDocument)


def decode_infer(
    body: bytes,
    headers: dict[bytes, bytes],
    version: LoadedVersion,
    regions: SharedMemoryRegions,
    limits: Limits,
    levels: int,
    known: HttpPlans,
) -> InferRequest[HttpAnswers]:
    """Return the request in `body`, which is decompressed already, checked against `version`.

    `levels` is the number of the model's priorities.

    Raises:
        RequestError: the body is not of this protocol, lacks something, or does not fit the model.

    """
    length = _header_length(headers, len(body))
    if length == 0:
        return _decode_raw(body, headers, version, limits, levels)
    text = body[:length]
    plan, request_id, lists = known.find(version, text)
    if plan is not None:
        request = plan.request(version, body, length, lists, headers, regions, limits, levels, request_id)
        if request is not None:
            return request
    asked = _question(text, version, regions, limits)
    answers = HttpAnswers(version, asked.outputs)
    contents = _contents(body, length, asked.sources)
    request = ask(asked, version, contents, headers, regions, limits, levels, answers)
    if plan is None:
        known.learn(text, asked, request, len(body) - length, limits, levels)
    return request


def encode_infer(request: InferRequest[HttpAnswers], outputs: list[Array]) -> Response:
    """Return the answer; `outputs` are all the model's, and are not needed after this call.

    Raises:
        RequestError: an output cannot be put where or how the request wants it.

    """
    return request.answers.write(outputs, request.id, request.regions)


def compressed(response: Response, encoding: str) -> Response:
    """Return `response` with its body in `encoding`."""
    headers = (*response.headers, (b"content-encoding", encoding.encode()), (b"vary", b"accept-encoding"))
    return Response(response.status, compress(response.body, encoding), response.content_type, headers)


def misfit(error: Exception) -> RequestError:
    """Return the error for a body that msgspec could not make the expected object of."""
    text, _, place = str(error).partition(" - at `")
    field = place.rstrip("`").removeprefix("$").removeprefix(".")
    return invalid(field or "body", text, "the JSON of the Open Inference Protocol")


def _header_length(headers: dict[bytes, bytes], body_length: int) -> int:
    text = headers.get(HEADER_LENGTH)
    if text is None:
        return body_length or 1  # an empty body is no JSON, but not the bytes of an input either
    if not (text.isdigit() and len(text) <= _MAX_DIGITS and int(text) <= body_length):
        shown = text[:32].decode("latin-1")
        raise invalid(HEADER_LENGTH.decode(), f"{shown!r} is not accepted", f"0 to {body_length} (body)")
    return int(text)


def _decode_document(content: Buffer) -> InferDocument:
    try:
        return _DOCUMENT.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise misfit(error) from error
    except RecursionError as error:
        raise invalid("body", "is nested too deeply", "one JSON object") from error


def _question(head: bytes, version: LoadedVersion, regions: SharedMemoryRegions, limits: Limits) -> Question:
    document = _decode_document(head)
    parameters = document.parameters or {}
    binary = truth(parameters, "binary_data_output", default=False)
    signature = version.signature
    sources = [_source(tensor, signature, regions, limits) for tensor in document.inputs]
    if document.outputs:
        named = [(output.name, output.parameters or {}) for output in document.outputs]
        outputs = wanted_outputs(signature, named, regions, limits, binary=binary)
    else:
        outputs = all_outputs(signature, binary=binary)
    return question(version, parameters, sources, outputs, document.id)


def _source(
    tensor: TensorDocument, signature: Signature, regions: SharedMemoryRegions, limits: Limits
) -> Source:
    expected = expect(signature, tensor.name, tensor.datatype, tensor.shape)
    shape = tuple(tensor.shape)
    parameters = tensor.parameters or {}
    field = f"inputs.{tensor.name}"
    size = whole_number(parameters, "binary_data_size", field) if "binary_data_size" in parameters else None
    part = region_part(parameters, regions, field, limits.max_tensor_bytes) if parameters else None
    data = tensor.data
    if (size is not None) + (part is not None) + (data is not _MISSING) != 1:
        allowed = "one of data, binary_data_size, shared_memory_region"
        raise invalid(field, "has its data nowhere or twice", allowed)
    if part is not None:
        return Source(expected, shape, field, part)
    if size is not None:
        return Source(expected, shape, f"{field} (binary data)", byte_size=size)
    place = f"{field}.data"
    return Source(
        expected, shape, place, typed=lambda: from_json(expected.datatype, data, expected.elements, place)
    )


def _contents(body: bytes, position: int, sources: tuple[Source, ...]) -> Iterator[memoryview]:
    """Return the tensors that follow the JSON, which ends at `position`.

    Raises:
        RequestError: they are more or fewer bytes than the JSON says.

    """
    announced = sum([source.byte_size for source in sources])
    if position + announced != len(body):
        problem = f"has {len(body) - position} bytes after the JSON"
        raise invalid("body", problem, f"{announced}, all binary_data_size together")
    view = memoryview(body)
    contents = []
    for source in sources:
        if source.follows:
            end = position + source.byte_size
            contents.append(view[position:end])
            position = end
    return iter(contents)


def _decode_raw(
    body: bytes, headers: dict[bytes, bytes], version: LoadedVersion, limits: Limits, levels: int
) -> InferRequest[HttpAnswers]:
    """Read a body that is nothing but the bytes of the only input, of one row. All outputs are bytes."""
    signature = version.signature
    if len(signature.inputs) != 1:
        problem = f"0 means the bytes of one input; the model has {len(signature.inputs)}"
        raise invalid(HEADER_LENGTH.decode(), problem, "the length of the JSON")
    (spec,) = signature.inputs
    if spec.datatype == "BYTES":  # the body is the only element, without its length before it
        body = len(body).to_bytes(4, "little") + body
        shape = [1 if dim is None else dim for dim in spec.dims]
    else:
        shape = _raw_shape(spec, len(body), shared=version.max_rows is not None)
    expected = expect(signature, spec.name, spec.datatype, shape)
    array = elements(body, expected, "body").reshape(shape)
    outputs = all_outputs(signature, binary=True)
    return InferRequest(
        version,
        (array,),
        count_rows(signature, [array]),
        outputs,
        "",
        request_parameters({}, headers, levels, limits.max_timeout_ns),
        HttpAnswers(version, outputs),
    )


def _raw_shape(spec: TensorSpec, length: int, *, shared: bool) -> list[int]:
    """Return the shape of so many bytes: one row, and at most one dimension follows from the length."""
    if not spec.ranked:
        raise invalid(HEADER_LENGTH.decode(), "0 leaves the shape open", "the length of the JSON")
    shape = spec.wire_shape
    if shared:
        shape[0] = 1
    if shape.count(-1) > 1:
        problem = f"0 leaves {shape.count(-1)} dimensions of {spec.name!r} open"
        raise invalid(HEADER_LENGTH.decode(), problem, "the length of the JSON")
    if -1 in shape:
        known = DATATYPES[spec.datatype].element_bytes
        for dim in shape:
            known *= 1 if dim == -1 else dim
        shape[shape.index(-1)] = max(1, length // known)
    return shape
