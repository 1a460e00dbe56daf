"""What a request asks, apart from its tensors, and how it is answered once the tensors are there.

This is the precise reading, which any request can take. `plans.py` has the short one, for questions that were
asked before.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from mcp2026.runtime.errors import invalid
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.loaded import LoadedVersion
from mcp2026.runtime.model.signature import count_rows
from mcp2026.runtime.protocol.open_inference.datatypes import Buffer
from mcp2026.runtime.protocol.open_inference.parameters import (
    Parameters,
    RegionPart,
    request_parameters,
)
from mcp2026.runtime.protocol.open_inference.requests import (
    Answers,
    Expected,
    InferRequest,
    Limits,
    WantedOutput,
    elements,
    from_region,
    held_regions,
    names_of,
)
from mcp2026.runtime.shared_memory.regions import SharedMemoryRegions


class Source(NamedTuple):
    """Where one input comes from: out of shared memory, out of the message itself, or as bytes behind it."""

    expected: Expected
    shape: tuple[int, ...]
    field: str
    """How an error calls it."""
    part: RegionPart | None = None
    typed: Callable[[], Array] | None = None
    """Gives its elements, flat, if the message itself has them."""
    byte_size: int = 0
    """Over HTTP, how many bytes follow."""

    @property
    def follows(self) -> bool:
        """Its elements come as bytes behind the message."""
        return self.part is None and self.typed is None


class Question(NamedTuple):
    """A request without the tensors that follow as bytes."""

    parameters: Parameters
    sources: tuple[Source, ...]
    """In the order of the request."""
    order: tuple[int, ...]
    """Per input of the model its place in `sources`."""
    outputs: tuple[WantedOutput, ...]
    id: str = ""


def question(
    version: LoadedVersion,
    parameters: Parameters,
    sources: Sequence[Source],
    outputs: tuple[WantedOutput, ...],
    request_id: str,
) -> Question:
    """Put a question together.

    Raises:
        RequestError: an input is missing or named twice.

    """
    specs = version.signature.inputs
    places = {source.expected.spec.name: place for place, source in enumerate(sources)}
    if len(places) != len(sources):
        raise invalid("inputs", "one is named twice", "each input once")
    missing = [spec.name for spec in specs if spec.name not in places]
    if missing:
        raise invalid("inputs", f"input {missing[0]!r} is missing", names_of(specs))
    order = tuple([places[spec.name] for spec in specs])
    return Question(parameters, tuple(sources), order, outputs, request_id)


def ask(
    asked: Question,
    version: LoadedVersion,
    contents: Iterator[Buffer],
    headers: Mapping[bytes, bytes],
    regions: SharedMemoryRegions,
    limits: Limits,
    levels: int,
    answers: Answers,
    request_id: str = "",
) -> InferRequest[Answers]:
    """Return the request with its tensors; `contents` gives those that follow as bytes, in order.

    `levels` is the number of the model's priorities.

    Raises:
        RequestError: a tensor does not hold what its shape says, or a parameter is not accepted.

    """
    wanted = request_parameters(asked.parameters, headers, levels, limits.max_timeout_ns)
    held = held_regions(asked.outputs, regions)
    arrays = []
    for source in asked.sources:
        if source.part is not None:
            flat = from_region(source.part, regions, source.expected, source.field)
        elif source.typed is not None:
            flat = source.typed()
        else:
            flat = elements(next(contents), source.expected, source.field)
        arrays.append(flat.reshape(source.shape))
    inputs = tuple([arrays[place] for place in asked.order])
    rows = count_rows(version.signature, list(inputs))
    request_id = request_id or asked.id
    return InferRequest(version, inputs, rows, asked.outputs, request_id, wanted, answers, held)
