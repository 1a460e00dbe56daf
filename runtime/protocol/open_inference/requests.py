"""What a request means, whatever protocol carried it: its tensors fit the model, its outputs exist."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import msgspec

from mcp2026.runtime.errors import invalid
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.loaded import LoadedVersion
from mcp2026.runtime.model.signature import MAX_DIMENSIONS, Signature, TensorSpec, check_shape
from mcp2026.runtime.protocol.inflating import Room
from mcp2026.runtime.protocol.open_inference.datatypes import DATATYPES, Buffer, DataType, from_wire
from mcp2026.runtime.protocol.open_inference.parameters import (
    Parameters,
    RegionPart,
    RequestParameters,
    region_part,
    truth,
    whole_number,
)
from mcp2026.runtime.shared_memory.regions import Region, SharedMemoryRegions

_MAX_CLASSES = 1_000_000

Answers = TypeVar("Answers")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may ask for."""

    max_timeout_ns: int
    max_tensor_bytes: int
    """Of a tensor in shared memory, and of a body when it is decompressed."""
    room: Room
    """For bodies of all callers that are being decompressed."""


class WantedOutput(NamedTuple):
    """One output of the answer."""

    place: int
    """In the model's outputs."""
    spec: TensorSpec
    binary: bool = True
    """As bytes after the JSON; gRPC always has bytes."""
    classes: int = 0
    """Answer the highest values of each row instead; 0: the output itself."""
    part: RegionPart | None = None
    """Write it there instead of into the answer."""


class InferRequest(msgspec.Struct, Generic[Answers], frozen=True, gc=False):
    """A request that fits the model."""

    version: LoadedVersion
    inputs: tuple[Array, ...]
    rows: int
    outputs: tuple[WantedOutput, ...]
    id: str
    wanted: RequestParameters
    answers: Answers
    """Writes the answers to such requests."""
    regions: tuple[Region, ...] = ()
    """Those that outputs go to, in the order of these outputs. They are held until the answer is written."""


class Expected(NamedTuple):
    """What the bytes or values of one input must be."""

    spec: TensorSpec
    datatype: DataType
    elements: int


def expect(signature: Signature, name: str, datatype: str, shape: Sequence[int]) -> Expected:
    """Return what an input that a request announces must hold.

    Raises:
        RequestError: the model has no such input, or takes another type or shape.

    """
    for spec in signature.inputs:
        if spec.name == name:
            break
    else:
        raise invalid("inputs", f"the model has no input {name[:64]!r}", names_of(signature.inputs))
    if datatype != spec.datatype:
        raise invalid(f"inputs.{name}.datatype", f"{datatype[:16]!r} is not what it takes", spec.datatype)
    # check_shape refuses more dimensions without looking at what may be millions of them.
    count = math.prod(shape) if len(shape) <= MAX_DIMENSIONS else 0
    check_shape(spec, list(shape), count, f"inputs.{name}.shape")
    return Expected(spec, DATATYPES[datatype], count)


def elements(content: Buffer, expected: Expected, field: str) -> Array:
    """Return the elements of an input that came as bytes, flat; numbers are a view of `content`.

    Raises:
        RequestError: `content` does not hold them, or holds strings that ONNX cannot: they are not UTF-8.

    """
    array = from_wire(expected.datatype, content, expected.elements, field)
    if expected.datatype.name == "BYTES":
        check_text(array, field)
    return array


def check_text(strings: Array, field: str) -> None:
    """Check that ONNX can hold `strings`, which are bytes.

    Raises:
        RequestError: one is not UTF-8.

    """
    for place, element in enumerate(strings):
        if not (element.isascii() or _is_text(element)):
            raise invalid(field, f"element {place} is not UTF-8", "strings in UTF-8, as ONNX has them")


def from_region(part: RegionPart, regions: SharedMemoryRegions, expected: Expected, field: str) -> Array:
    """Return a copy of an input that lies in shared memory, flat.

    Raises:
        RequestError: the part is not there any more, or does not hold the elements.

    """
    return elements(regions.get(part.region).read(part.offset, part.byte_size), expected, field)


def held_regions(outputs: Sequence[WantedOutput], regions: SharedMemoryRegions) -> tuple[Region, ...]:
    """Return the regions that `outputs` go to, in their order.

    Raises:
        RequestError: one is not registered any more.

    """
    return tuple([regions.get(wanted.part.region) for wanted in outputs if wanted.part is not None])


def all_outputs(signature: Signature, *, binary: bool) -> tuple[WantedOutput, ...]:
    """Return every output, as a request gets that names none."""
    return tuple([WantedOutput(index, spec, binary) for index, spec in enumerate(signature.outputs)])


def wanted_outputs(
    signature: Signature,
    named: Sequence[tuple[str, Parameters]],
    regions: SharedMemoryRegions,
    limits: Limits,
    *,
    binary: bool,
) -> tuple[WantedOutput, ...]:
    """Return the outputs that a request names, with their parameters; `binary` if these do not say.

    Raises:
        RequestError: one does not exist, is named twice, or its parameters are not accepted.

    """
    by_name = {spec.name: (index, spec) for index, spec in enumerate(signature.outputs)}
    wanted: dict[str, WantedOutput] = {}
    for name, parameters in named:
        if name not in by_name:
            raise invalid("outputs", f"the model has no output {name[:64]!r}", names_of(signature.outputs))
        if name in wanted:
            raise invalid("outputs", f"{name!r} is named twice", "each output once")
        index, spec = by_name[name]
        if not parameters:
            wanted[name] = WantedOutput(index, spec, binary)
            continue
        field = f"outputs.{name}.parameters"
        part = region_part(parameters, regions, field, limits.max_tensor_bytes)
        classes = whole_number(parameters, "classification", field)
        if classes > _MAX_CLASSES:
            raise invalid(f"{field}.classification", f"{classes} is too much", f"at most {_MAX_CLASSES}")
        if classes and part is not None:
            raise invalid(field, "has classification beside shared memory", "one of the two")
        wanted[name] = WantedOutput(
            index, spec, truth(parameters, "binary_data", binary, field), classes, part
        )
    return tuple(wanted.values())


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def names_of(specs: Sequence[TensorSpec]) -> str:
    """Return the names of tensors, for an error that says what there is."""
    return ", ".join(spec.name for spec in specs)
