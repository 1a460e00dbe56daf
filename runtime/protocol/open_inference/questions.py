"""What a request asks, apart from the tensors that are sent as bytes.

A client asks the same question again and again, with other tensors: the same model, names, shapes, outputs
and parameters. So the part of a message before the tensors is read once and remembered by its bytes; the next
time only the tensors are looked at.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from mcp2026.runtime.errors import invalid
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.loaded import LoadedVersion
from mcp2026.runtime.model.signature import count_rows
from mcp2026.runtime.protocol.open_inference.datatypes import Buffer
from mcp2026.runtime.protocol.open_inference.parameters import Parameters, request_parameters
from mcp2026.runtime.protocol.open_inference.requests import (
    Expected,
    InferRequest,
    Limits,
    WantedOutput,
    elements,
    names_of,
)


class Source(NamedTuple):
    """Where one input comes from."""

    expected: Expected
    shape: tuple[int, ...]
    field: str
    """How an error calls it."""
    elsewhere: Callable[[], Array] | None = None
    """Gives its elements, flat, if they do not follow as bytes."""
    byte_size: int = 0
    """Over HTTP, how many bytes follow."""


class Question(NamedTuple):
    """A request without the tensors that follow as bytes."""

    parameters: Parameters
    sources: tuple[Source, ...]
    """In the order of the request."""
    order: tuple[int, ...]
    """Per input of the model its place in `sources`."""
    outputs: tuple[WantedOutput, ...]
    id: str = ""

    @property
    def lasting(self) -> bool:
        """Nothing in it is of this one request."""
        return (
            not self.id
            and all(source.elsewhere is None for source in self.sources)
            and all(output.part is None for output in self.outputs)
        )


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
    limits: Limits,
    levels: int,
    request_id: str = "",
) -> InferRequest:
    """Return the request with its tensors; `contents` gives those that follow as bytes, in order.

    `levels` is the number of the model's priorities.

    Raises:
        RequestError: a tensor does not hold what its shape says, or a parameter is not accepted.

    """
    wanted = request_parameters(asked.parameters, headers, levels, limits.max_timeout_ns)
    arrays = []
    for source in asked.sources:
        if source.elsewhere is not None:
            flat = source.elsewhere()
        else:
            flat = elements(next(contents), source.expected, source.field)
        arrays.append(flat.reshape(source.shape))
    inputs = tuple([arrays[place] for place in asked.order])
    rows = count_rows(version.signature, list(inputs))
    return InferRequest(version, inputs, rows, asked.outputs, request_id or asked.id, wanted)


class KnownQuestions:
    """The questions that were asked of the versions that are served; those of a retired one go with it."""

    def __init__(self, most: int = 256, longest: int = 4_096) -> None:
        """Remember up to `most` questions of each version, each up to `longest` bytes."""
        self._most = most
        self._longest = longest
        self._of_version: WeakKeyDictionary[LoadedVersion, dict[bytes, Question]] = WeakKeyDictionary()

    def find(self, version: LoadedVersion, head: bytes) -> Question | None:
        """Return the question that was asked by these bytes."""
        if len(head) > self._longest:
            return None
        known = self._of_version.get(version)
        return None if known is None else known.get(head)

    def keep(self, version: LoadedVersion, head: bytes, asked: Question) -> None:
        """Remember a question, if it can be asked again."""
        if len(head) > self._longest or not asked.lasting:
            return
        known = self._of_version.setdefault(version, {})
        if len(known) >= self._most:
            known.clear()
        known[head] = asked
