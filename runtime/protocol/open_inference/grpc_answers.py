"""Answers over gRPC: a ModelInferResponse, in which what comes before the tensors is made once per shape."""

from collections.abc import Sequence
from typing import Any

from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.loaded import LoadedVersion
from mcp2026.runtime.protocol.open_inference import open_inference_pb2 as messages
from mcp2026.runtime.protocol.open_inference.classification import classify
from mcp2026.runtime.protocol.open_inference.datatypes import Buffer, as_buffer, to_wire
from mcp2026.runtime.protocol.open_inference.requests import WantedOutput
from mcp2026.runtime.protocol.open_inference.wire import RAW_OUTPUTS, bytes_field, bytes_head
from mcp2026.runtime.shared_memory.regions import Region

_MAX_FORMS = 16
"""The shapes of outputs may follow from the values of the inputs."""
_ID = 3

_final = messages.ModelInferResponse()
_final.parameters["triton_final_response"].bool_param = True
_FINAL = _final.SerializeToString()
"""Says that it is the last answer to its request."""

Shapes = tuple[int, ...] | tuple[tuple[int, ...], ...]


class GrpcAnswers:
    """Writes the answers to one question."""

    __slots__ = ("_forms", "_outputs", "_rows", "_start", "_uniform")

    def __init__(self, version: LoadedVersion, outputs: tuple[WantedOutput, ...]) -> None:
        """Answer for `version` with `outputs`."""
        self._start = messages.ModelInferResponse(
            model_name=version.model, model_version=version.version_id
        ).SerializeToString()
        self._rows = version.max_rows is not None
        self._outputs = outputs
        self._uniform = not any(wanted.classes or wanted.spec.datatype == "BYTES" for wanted in outputs)
        """All but the numbers follows from the shapes."""
        self._forms: dict[Shapes, list[bytes]] = {}
        """What comes before the bytes of each output, by the shapes of all outputs, or of the only one."""

    def write(
        self, outputs: list[Array], request_id: str, regions: Sequence[Region], *, final: bool
    ) -> list[Buffer]:
        """Return the parts of the answer; some are views of `outputs`, which are all the model's.

        `regions` are those that outputs go to, in order.

        Raises:
            RequestError: an output cannot be put where or how it is wanted.

        """
        parts: list[Buffer] = [self._start]
        if request_id:
            parts += bytes_field(_ID, [request_id.encode()])
        if final:
            parts.append(_FINAL)
        if not self._uniform:
            return parts + self._write_any(outputs, regions)
        key = outputs[0].shape if len(outputs) == 1 else tuple([array.shape for array in outputs])
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = self._learn(outputs)
        free = iter(regions)
        for head, wanted in zip(form, self._outputs, strict=True):
            array = outputs[wanted.place]
            parts.append(head)
            if wanted.part is None:
                parts.append(as_buffer(array))
            else:
                _to_region(wanted, next(free), to_wire(wanted.spec.datatype, array))
        return parts

    def _learn(self, outputs: list[Array]) -> list[bytes]:
        message = messages.ModelInferResponse()
        form = []
        for wanted in self._outputs:
            array = outputs[wanted.place]
            _describe(message, wanted, wanted.spec.datatype, array, array.nbytes)
            form.append(bytes_head(RAW_OUTPUTS, 0 if wanted.part is not None else array.nbytes))
        form[0] = message.SerializeToString() + form[0]
        if len(self._forms) >= _MAX_FORMS:
            self._forms.clear()
        return form

    def _write_any(self, outputs: list[Array], regions: Sequence[Region]) -> list[Buffer]:
        """Return the parts of an answer in which sizes or shapes follow from the values."""
        message = messages.ModelInferResponse()
        free = iter(regions)
        raw: list[Buffer] = []
        for wanted in self._outputs:
            array, datatype = outputs[wanted.place], wanted.spec.datatype
            if wanted.classes:
                array = classify(
                    datatype, array, wanted.classes, f"outputs.{wanted.spec.name}", rows=self._rows
                )
                datatype = "BYTES"
            parts = to_wire(datatype, array)
            _describe(message, wanted, datatype, array, sum([len(part) for part in parts]))
            if wanted.part is not None:
                _to_region(wanted, next(free), parts)
                parts = []
            raw += bytes_field(RAW_OUTPUTS, parts)
        return [message.SerializeToString(), *raw]


def _describe(message: Any, wanted: WantedOutput, datatype: str, array: Array, byte_size: int) -> None:
    """Add an output without its bytes to a ModelInferResponse."""
    tensor = message.outputs.add(name=wanted.spec.name, datatype=datatype, shape=array.shape)
    part = wanted.part
    if part is not None:
        tensor.parameters["shared_memory_region"].string_param = part.region
        tensor.parameters["shared_memory_offset"].int64_param = part.offset
        tensor.parameters["shared_memory_byte_size"].int64_param = byte_size


def _to_region(wanted: WantedOutput, region: Region, parts: Sequence[Buffer]) -> None:
    assert wanted.part is not None
    region.write(wanted.part.offset, wanted.part.byte_size, parts)
