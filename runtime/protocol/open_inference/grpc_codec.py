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
from mcp2026.runtime.protocol.open_inference.datatypes import Buffer
from mcp2026.runtime.protocol.open_inference.grpc_answers import GrpcAnswers
from mcp2026.runtime.protocol.open_inference.json_data import to_array
from mcp2026.runtime.protocol.open_inference.parameters import (
    Parameters,
    RegionPart,
    Value,
    region_part,
)
from mcp2026.runtime.protocol.open_inference.plans import InRegion, Plan, Reader, Remembered, behind
from mcp2026.runtime.protocol.open_inference.questions import Question, Source, ask, question
from mcp2026.runtime.protocol.open_inference.requests import (
    Expected,
    InferRequest,
    Limits,
    all_outputs,
    check_text,
    expect,
    wanted_outputs,
)
from mcp2026.runtime.protocol.open_inference.wire import (
    RAW_INPUTS,
    bytes_head,
    place_of_id,
    split_request,
)
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
    """One ModelInferRequest, of which only so much was read as is needed to know what it asks.

    If it begins as one before it did, `key` is what they have in common: all up to the first raw tensor,
    without the id. Else `key` is empty, and it was taken apart.
    """

    __slots__ = ("_message", "base", "content", "head", "id", "key", "raw")

    def __init__(self, content: bytes, known: "KnownMessages | None" = None) -> None:
        """Find the parts of `content`.

        Raises:
            RequestError: it is no ModelInferRequest.

        """
        self.content = content
        self._message: messages.ModelInferRequest | None = None
        found = None if known is None else known.recognise(content)
        if found is None:
            self.take_apart()
        else:
            self.key, self.id, self.base = found

    def take_apart(self) -> None:
        """Find the raw tensors, as views of the message.

        Raises:
            RequestError: it is no ModelInferRequest.

        """
        self.key = b""
        split = split_request(self.content)
        if split is not None:
            self.head, request_id, self.raw = split
            try:
                self.id = request_id.decode()
            except UnicodeDecodeError as error:
                raise invalid("id", "is not UTF-8", "a text") from error
            return
        message = _read(self.content)
        self.id = message.id
        self.raw = [memoryview(raw) for raw in message.raw_input_contents]
        message.ClearField("id")
        message.ClearField("raw_input_contents")
        self.head = message.SerializeToString()

    @property
    def message(self) -> messages.ModelInferRequest:
        """The request without its id and its raw inputs; it was taken apart before.

        Raises:
            RequestError: it is no ModelInferRequest.

        """
        if self._message is None:
            self._message = _read(self.head)
        return self._message


class KnownMessages:
    """How the messages began that were read before, and what they asked."""

    def __init__(self, most: int = 1_024, longest: int = 4_096) -> None:
        """Know up to `most` beginnings of up to `longest` bytes."""
        self._most = most
        self._longest = longest
        self._sizes: dict[int, int] = {}
        """Of a message without its id to that of its beginning."""
        self._names: dict[bytes, tuple[str, str | None]] = {}
        self.plans: Remembered[Plan[GrpcAnswers]] = Remembered(longest=longest)
        """By the beginnings."""
        self.questions: Remembered[Question] = Remembered(longest=longest)
        """By all but id and raw tensors, of requests that have raw tensors of any size."""

    def recognise(self, content: bytes) -> tuple[bytes, str, int] | None:
        """Return the beginning of `content` without its id, the id, and where the beginning ends.

        None if the names of model and version are not known by it.
        """
        try:
            start, stop = place_of_id(content)
            base = self._sizes[len(content) - (stop - start)] + (stop - start)
        except (IndexError, KeyError):
            return None
        if start == stop:
            key, request_id = content[:base], ""
        else:
            key = content[:start] + content[stop:base]
            try:
                request_id = content[start + 2 : stop].decode()
            except UnicodeDecodeError:
                return None
        return (key, request_id, base) if key in self._names else None

    def names(self, inference: Inference) -> tuple[str, str | None]:
        """Return the model and the version that a request names.

        Raises:
            RequestError: the message cannot be read.

        """
        key = inference.key or inference.head
        names = self._names.get(key) if len(key) <= self._longest else None
        if names is None:
            message = inference.message
            names = (message.model_name, message.model_version or None)
            if len(key) <= self._longest:
                if len(self._names) >= self._most:
                    self.clear()
                self._names[key] = names
        return names

    def clear(self) -> None:
        """Forget all, so that it can be learned again."""
        for table in (self._sizes, self._names, self.plans, self.questions):
            table.clear()

    def learn(
        self,
        inference: Inference,
        asked: Question,
        request: InferRequest[GrpcAnswers],
        limits: Limits,
        levels: int,
    ) -> None:
        """Remember a request with raw tensors that was read precisely."""
        version = request.version
        names = self.names(inference)
        self.questions.keep(version, inference.head, asked)
        if any(source.follows and source.expected.datatype.name == "BYTES" for source in asked.sources):
            return  # the next one will have another size
        heads = [bytes_head(RAW_INPUTS, len(raw)) for raw in inference.raw]
        key = inference.head + heads[0]
        if len(key) > self._longest:
            return
        between: list[tuple[int, bytes]] = []
        readers: list[Reader] = []
        raw = iter(inference.raw)
        offset = 0
        for source in asked.sources:
            if source.part is not None:
                readers.append(InRegion(source, source.part))
                continue
            if offset:
                head = heads[len(between) + 1]
                between.append((offset, head))
                offset += len(head)
            size = len(next(raw))
            readers.append(behind(source, offset, size))
            offset += size
        self._names[key] = names
        self._sizes[len(key) + offset] = len(key)
        self.plans.keep(version, key, Plan(asked, request, readers, offset, limits, levels, between))


def decode_infer(
    inference: Inference,
    metadata: Mapping[bytes, bytes],
    version: LoadedVersion,
    regions: SharedMemoryRegions,
    limits: Limits,
    levels: int,
    known: KnownMessages,
) -> InferRequest[GrpcAnswers]:
    """Return the request, checked against `version`. `levels` is the number of the model's priorities.

    Raises:
        RequestError: it lacks something, or does not fit the model.

    """
    if inference.key:
        plan = known.plans.find(version, inference.key)
        if plan is not None:
            request = plan.request(
                version,
                inference.content,
                inference.base,
                (),
                metadata,
                regions,
                limits,
                levels,
                inference.id,
            )
            if request is not None:
                return request
        inference.take_apart()
    raw = inference.raw
    # With and without raw inputs, the same bytes say where a tensor is in different ways.
    asked = known.questions.find(version, inference.head) if raw else None
    new = asked is None
    if asked is None:
        asked = _question(inference, version, regions, limits)
    needed = sum([source.follows for source in asked.sources])
    if needed != len(raw):
        raise invalid("raw_input_contents", f"has {len(raw)} tensors", f"{needed}, one for each input")
    answers = GrpcAnswers(version, asked.outputs)
    request = ask(asked, version, iter(raw), metadata, regions, limits, levels, answers, inference.id)
    if raw and new:
        known.learn(inference, asked, request, limits, levels)
    return request


def encode_infer(
    request: InferRequest[GrpcAnswers], outputs: list[Array], *, final: bool = False
) -> list[Buffer]:
    """Return the parts of the ModelInferResponse; `outputs` are all the model's.

    The parts are views of the outputs and have to be joined before these are given back. `final` marks the
    last answer to a request of a stream, as every answer here is.

    Raises:
        RequestError: an output cannot be put where or how the request wants it.

    """
    return request.answers.write(outputs, request.id, request.regions, final=final)


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
        return Source(expected, shape, field, part)
    if raw:
        return Source(expected, shape, field)
    contents = tensor.contents
    return Source(expected, shape, field, typed=lambda: _typed(contents, expected, field))


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
