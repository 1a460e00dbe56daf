"""Inference over HTTP: a JSON object, and after it the tensors that are sent as bytes.

`Inference-Header-Content-Length` says where the JSON ends; the tensors follow in the order in which the JSON
names them, without anything between. Without that header the body is JSON alone; with 0 it is the bytes of
the only input. https://github.com/triton-inference-server/server/tree/main/docs/protocol,
extension_binary_data.md.
"""

from typing import Any

import msgspec

from mcp2026.runtime.errors import RequestError, invalid
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.loaded import LoadedVersion
from mcp2026.runtime.model.signature import TensorSpec
from mcp2026.runtime.protocol.exchange import JSON, Response
from mcp2026.runtime.protocol.open_inference.classification import classify
from mcp2026.runtime.protocol.open_inference.compression import SMALLEST, accepted, compress
from mcp2026.runtime.protocol.open_inference.datatypes import DATATYPES, Buffer, to_wire
from mcp2026.runtime.protocol.open_inference.json_data import from_json, to_json
from mcp2026.runtime.protocol.open_inference.parameters import (
    Value,
    region_part,
    request_parameters,
    truth,
    whole_number,
)
from mcp2026.runtime.protocol.open_inference.requests import (
    Expected,
    InferRequest,
    Limits,
    WantedOutput,
    all_outputs,
    elements,
    expect,
    from_region,
    in_order,
    rows_of,
    to_region,
    wanted_outputs,
)
from mcp2026.runtime.shared_memory.regions import SharedMemoryRegions

HEADER_LENGTH = b"inference-header-content-length"
BINARY = b"application/octet-stream"
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
) -> InferRequest:
    """Return the request in `body`, which is decompressed already, checked against `version`.

    `levels` is the number of the model's priorities.

    Raises:
        RequestError: the body is not of this protocol, lacks something, or does not fit the model.

    """
    length = _header_length(headers, len(body))
    if length == 0:
        return _decode_raw(body, headers, version, limits, levels)
    document = _decode_document(memoryview(body)[:length] if length < len(body) else body)
    parameters = document.parameters or {}
    wanted = request_parameters(parameters, headers, levels, limits.max_timeout_ns)
    binary = truth(parameters, "binary_data_output", default=False)
    signature = version.signature
    found: dict[str, Array] = {}
    position = length
    for tensor in document.inputs:
        name = tensor.name
        expected = expect(signature, name, tensor.datatype, tensor.shape)
        if name in found:
            raise invalid("inputs", f"{name!r} is named twice", "each input once")
        flat, size = _content(tensor, expected, memoryview(body)[position:], regions, limits)
        position += size
        found[name] = flat.reshape(tensor.shape)
    if position != len(body):
        problem = f"has {len(body) - position} bytes that belong to no input"
        raise invalid("body", problem, "as many bytes as all binary_data_size together")
    inputs = in_order(signature, found)
    if document.outputs:
        named = [(output.name, output.parameters or {}) for output in document.outputs]
        outputs = wanted_outputs(signature, named, regions, limits, binary=binary)
    else:
        outputs = all_outputs(signature, binary=binary)
    return InferRequest(version, inputs, rows_of(version, inputs), outputs, document.id, wanted)


def encode_infer(request: InferRequest, outputs: list[Array], accept_encoding: bytes = b"") -> Response:
    """Return the answer; `outputs` are all the model's, and are not needed after this call.

    Raises:
        RequestError: an output cannot be put where or how the request wants it.

    """
    documents: list[dict[str, Any]] = []
    blobs: list[Buffer] = []
    for wanted in request.outputs:
        document, parts = _encode_output(wanted, request.version, outputs[wanted.place])
        documents.append(document)
        blobs += parts
    answer: dict[str, Any] = {
        "model_name": request.version.model,
        "model_version": request.version.version_id,
        "outputs": documents,
    }
    if request.id:
        answer["id"] = request.id
    body = msgspec.json.encode(answer)
    headers: tuple[tuple[bytes, bytes], ...] = ()
    content_type = JSON
    if any(output.binary and output.part is None for output in request.outputs):
        headers = ((HEADER_LENGTH, b"%d" % len(body)),)
        content_type = BINARY
        body = b"".join([body, *blobs])
    if accept_encoding and len(body) >= SMALLEST and (encoding := accepted(accept_encoding)):
        body = compress(body, encoding)
        headers = (*headers, (b"content-encoding", encoding.encode()), (b"vary", b"accept-encoding"))
    return Response(200, body, content_type, headers)


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
        raise invalid(HEADER_LENGTH.decode(), f"{text[:32]!r} is not accepted", f"0 to {body_length} (body)")
    return int(text)


def _decode_document(content: Buffer) -> InferDocument:
    try:
        return _DOCUMENT.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise misfit(error) from error
    except RecursionError as error:
        raise invalid("body", "is nested too deeply", "one JSON object") from error


def _content(
    tensor: TensorDocument,
    expected: Expected,
    rest: memoryview,
    regions: SharedMemoryRegions,
    limits: Limits,
) -> tuple[Array, int]:
    """Return a tensor's elements and how many bytes of `rest`, which follows the JSON, it has taken."""
    parameters = tensor.parameters or {}
    field = f"inputs.{tensor.name}"
    size = whole_number(parameters, "binary_data_size", field) if "binary_data_size" in parameters else None
    part = region_part(parameters, regions, field, limits.max_tensor_bytes) if parameters else None
    if (size is not None) + (part is not None) + (tensor.data is not _MISSING) != 1:
        raise invalid(
            field, "has its data nowhere or twice", "data, binary_data_size or shared_memory_region"
        )
    if part is not None:
        return from_region(part, expected, field), 0
    if size is None:
        return from_json(expected.datatype, tensor.data, expected.elements, f"{field}.data"), 0
    if size > len(rest):
        raise invalid(f"{field}.binary_data_size", f"{size} is too much", f"{len(rest)} bytes are left")
    return elements(rest[:size], expected, f"{field} (binary data)"), size


def _decode_raw(
    body: bytes, headers: dict[bytes, bytes], version: LoadedVersion, limits: Limits, levels: int
) -> InferRequest:
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
    return InferRequest(
        version,
        (array,),
        rows_of(version, [array]),
        all_outputs(signature, binary=True),
        "",
        request_parameters({}, headers, levels, limits.max_timeout_ns),
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


def _encode_output(
    wanted: WantedOutput, version: LoadedVersion, array: Array
) -> tuple[dict[str, Any], list[Buffer]]:
    """Return an output's place in the JSON, and the bytes that follow the JSON."""
    name, datatype = wanted.spec.name, wanted.spec.datatype
    field = f"outputs.{name}"
    if wanted.classes:
        array = classify(datatype, array, wanted.classes, field, rows=version.max_rows is not None)
        datatype = "BYTES"
    document: dict[str, Any] = {"name": name, "datatype": datatype, "shape": array.shape}
    if wanted.part is not None:
        # Without parameters: Triton's C++ client takes any for those of binary data.
        to_region(wanted, to_wire(datatype, array))
        return document, []
    if wanted.binary:
        parts = to_wire(datatype, array)
        document["parameters"] = {"binary_data_size": sum(len(part) for part in parts)}
        return document, parts
    document["data"] = to_json(datatype, array, field)
    return document, []
