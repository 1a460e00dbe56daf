"""Answers over HTTP: a JSON object, and behind it the outputs that are wanted as bytes."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.loaded import LoadedVersion
from mcp2026.runtime.model.signature import TensorSpec
from mcp2026.runtime.protocol.exchange import Response
from mcp2026.runtime.protocol.json_form import numbers
from mcp2026.runtime.protocol.open_inference.classification import classify
from mcp2026.runtime.protocol.open_inference.datatypes import (
    Buffer,
    as_buffer,
    fp32_from_bf16,
    to_wire,
)
from mcp2026.runtime.protocol.open_inference.json_data import texts
from mcp2026.runtime.protocol.open_inference.requests import WantedOutput
from mcp2026.runtime.shared_memory.regions import Region

HEADER_LENGTH = b"inference-header-content-length"
BINARY = b"application/octet-stream"
_MAX_FORMS = 16
"""The shapes of outputs may follow from the values of the inputs."""
_GAP = msgspec.Raw(b"\0")
"""Where values will be. No JSON has this byte."""

Shapes = tuple[int, ...] | tuple[tuple[int, ...], ...]


class _Form(NamedTuple):
    """What is the same in all answers with outputs of the same shapes."""

    pieces: tuple[bytes, ...]
    """The JSON up to its last brace; between two pieces stand the values of an output."""
    headers: tuple[tuple[bytes, bytes], ...]
    """Of an answer without such values and without id."""


class HttpAnswers:
    """Writes the answers to one question."""

    __slots__ = ("_behind", "_forms", "_listed", "_model", "_outputs", "_placed", "_rows", "_uniform")

    def __init__(self, version: LoadedVersion, outputs: tuple[WantedOutput, ...]) -> None:
        """Answer for `version` with `outputs`."""
        self._model = {"model_name": version.model, "model_version": version.version_id}
        self._rows = version.max_rows is not None
        self._outputs = outputs
        self._uniform = not any(wanted.classes or wanted.spec.datatype == "BYTES" for wanted in outputs)
        """What stands around the values follows from their shapes."""
        self._behind = tuple([one.place for one in outputs if one.binary and one.part is None])
        self._listed = tuple(
            [(one.place, _writer(one.spec)) for one in outputs if not one.binary and one.part is None]
        )
        self._placed = tuple([one for one in outputs if one.part is not None])
        self._forms: dict[Shapes, _Form] = {}
        """By the shapes of all outputs, or of the only one."""

    def write(self, outputs: list[Array], request_id: str, regions: Sequence[Region]) -> Response:
        """Return the answer; `outputs` are all the model's. `regions` are those that outputs go to, in order.

        Raises:
            RequestError: an output cannot be put where or how it is wanted.

        """
        if not self._uniform:
            return self._write_any(outputs, request_id, regions)
        key = outputs[0].shape if len(outputs) == 1 else tuple([array.shape for array in outputs])
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = self._learn(outputs)
        if regions:
            for wanted, region in zip(self._placed, regions, strict=True):
                _to_region(wanted, region, to_wire(wanted.spec.datatype, outputs[wanted.place]))
        end = b',"id":%b}' % msgspec.json.encode(request_id) if request_id else b"}"
        pieces, listed = form.pieces, self._listed
        if not listed:
            text = pieces[0] + end
        elif len(listed) == 1:
            place, write = listed[0]
            text = b"%b%b%b%b" % (pieces[0], write(outputs[place]), pieces[1], end)
        else:
            parts = [pieces[0]]
            for (place, write), piece in zip(listed, pieces[1:], strict=True):
                parts += (write(outputs[place]), piece)
            text = b"".join([*parts, end])
        if not self._behind:
            return Response(200, text)
        headers = _header_of(text) if request_id or listed else form.headers
        return Response(
            200, b"".join([text, *[as_buffer(outputs[place]) for place in self._behind]]), BINARY, headers
        )

    def _learn(self, outputs: list[Array]) -> _Form:
        documents = []
        for wanted in self._outputs:
            array = outputs[wanted.place]
            document = _document(wanted.spec.name, wanted.spec.datatype, array.shape)
            if wanted.part is None:
                if wanted.binary:
                    document["parameters"] = {"binary_data_size": array.nbytes}
                else:
                    document["data"] = _GAP
            documents.append(document)
        text = msgspec.json.encode(self._model | {"outputs": documents})
        form = _Form(tuple(text[:-1].split(bytes(_GAP))), _header_of(text))
        if len(self._forms) >= _MAX_FORMS:
            self._forms.clear()
        return form

    def _write_any(self, outputs: list[Array], request_id: str, regions: Sequence[Region]) -> Response:
        """Write an answer in which sizes or shapes follow from the values."""
        documents: list[dict[str, Any]] = []
        blobs: list[Buffer] = []
        free = iter(regions)
        for wanted in self._outputs:
            array, datatype = outputs[wanted.place], wanted.spec.datatype
            field = f"outputs.{wanted.spec.name}"
            if wanted.classes:
                array = classify(datatype, array, wanted.classes, field, rows=self._rows)
                datatype = "BYTES"
            document = _document(wanted.spec.name, datatype, array.shape)
            if wanted.part is not None:
                _to_region(wanted, next(free), to_wire(datatype, array))
            elif wanted.binary:
                parts = to_wire(datatype, array)
                document["parameters"] = {"binary_data_size": sum([len(part) for part in parts])}
                blobs += parts
            elif datatype == "BYTES":
                document["data"] = texts(array, field)
            else:
                document["data"] = msgspec.Raw(_writer(wanted.spec)(array))
            documents.append(document)
        answer = self._model | {"outputs": documents} | ({"id": request_id} if request_id else {})
        text = msgspec.json.encode(answer)
        if not self._behind:
            return Response(200, text)
        return Response(200, b"".join([text, *blobs]), BINARY, _header_of(text))


def _document(name: str, datatype: str, shape: tuple[int, ...]) -> dict[str, Any]:
    # One in shared memory has no parameters: Triton's C++ client takes any for those of binary data.
    return {"name": name, "datatype": datatype, "shape": shape}


def _to_region(wanted: WantedOutput, region: Region, parts: Sequence[Buffer]) -> None:
    assert wanted.part is not None
    region.write(wanted.part.offset, wanted.part.byte_size, parts)


def _header_of(text: bytes) -> tuple[tuple[bytes, bytes], ...]:
    return ((HEADER_LENGTH, b"%d" % len(text)),)


def _writer(spec: TensorSpec) -> Callable[[Array], bytes]:
    """Return what writes an output as a flat list in JSON, with strings for what JSON has no number for."""
    return _wide_numbers if spec.datatype == "BF16" else numbers


def _wide_numbers(array: Array) -> bytes:
    return numbers(fp32_from_bf16(array))
