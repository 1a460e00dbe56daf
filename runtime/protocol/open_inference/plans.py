"""How to read a request that asks what was asked before, with other tensors.

A client asks the same question again and again: the same model, names, shapes, outputs and parameters. What
is the same is read once, precisely (`questions.py`), and remembered by its bytes with a plan of how to get at
the tensors. A plan only recognises: what does not fit it in any way is read precisely again, from the
beginning, so there is one place that says what is wrong.
"""

import struct
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from mcp2026.runtime.errors import RequestError
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.loaded import LoadedVersion
from mcp2026.runtime.protocol.json_form import HELD_OTHERWISE, layout
from mcp2026.runtime.protocol.open_inference.json_data import list_decoder
from mcp2026.runtime.protocol.open_inference.parameters import (
    PRIORITY_HEADER,
    TENANT_HEADER,
    RegionPart,
    request_parameters,
)
from mcp2026.runtime.protocol.open_inference.questions import Question, Source
from mcp2026.runtime.protocol.open_inference.requests import (
    Answers,
    InferRequest,
    Limits,
    elements,
    held_regions,
)
from mcp2026.runtime.protocol.open_inference.skeletons import Key
from mcp2026.runtime.shared_memory.regions import SharedMemoryRegions

_UNFIT = (
    RequestError,
    msgspec.DecodeError,
    UnicodeDecodeError,
    struct.error,
    OverflowError,
)
"""What a reader may raise for a tensor that does not fit."""
_CHECKED = ("BOOL", "BYTES")
"""Not all bytes are elements of these."""


Reader = Callable[[bytes, int, Sequence[bytes], SharedMemoryRegions], Array]
"""Makes one input of a request, with its shape.

It is given the content, the place in it behind what is remembered, the lists that were cut out of JSON, and
the regions that are registered.
"""


class Behind:
    """Numbers that stand behind what is remembered, at a fixed distance; a view of them."""

    __slots__ = ("_dtype", "_offset", "_shape")

    def __init__(self, source: Source, offset: int) -> None:
        self._shape = source.shape
        self._dtype = source.expected.datatype.dtype
        self._offset = offset

    def __call__(
        self, content: bytes, base: int, _lists: Sequence[bytes], _regions: SharedMemoryRegions
    ) -> Array:
        """Return the input."""
        return np.ndarray(self._shape, self._dtype, content, base + self._offset)


class CheckedBehind:
    """Elements in the same place that have to be looked at: texts, and truths, of which any byte may come."""

    __slots__ = ("_offset", "_size", "_source")

    def __init__(self, source: Source, offset: int, size: int) -> None:
        self._source = source
        self._offset = offset
        self._size = size

    def __call__(
        self, content: bytes, base: int, _lists: Sequence[bytes], _regions: SharedMemoryRegions
    ) -> Array:
        """Return the input. Raises RequestError."""
        start, source = base + self._offset, self._source
        view = memoryview(content)[start : start + self._size]
        return elements(view, source.expected, source.field).reshape(source.shape)


class Listed:
    """A flat list of numbers in JSON."""

    __slots__ = ("_decode", "_dtype", "_pack", "_place", "_shape")

    def __init__(self, source: Source, place: int) -> None:
        expected = source.expected
        self._shape = source.shape
        self._dtype = expected.datatype.dtype
        self._place = place
        self._decode: Callable[[bytes], list[Any]] = list_decoder(expected.datatype).decode
        # It refuses any other number of values, and what the type cannot hold.
        self._pack = struct.Struct(layout(self._dtype, expected.elements)).pack

    def __call__(
        self, _content: bytes, _base: int, lists: Sequence[bytes], _regions: SharedMemoryRegions
    ) -> Array:
        """Return the input. Raises DecodeError, struct.error or OverflowError."""
        values = self._decode(lists[self._place])
        return np.ndarray(self._shape, self._dtype, self._pack(*values))


class InRegion:
    """Elements in shared memory."""

    __slots__ = ("_checked", "_dtype", "_part", "_shape", "_source")

    def __init__(self, source: Source, part: RegionPart) -> None:
        self._source = source
        self._part = part
        self._shape = source.shape
        self._dtype = source.expected.datatype.dtype
        self._checked = source.expected.datatype.name in _CHECKED

    def __call__(
        self, _content: bytes, _base: int, _lists: Sequence[bytes], regions: SharedMemoryRegions
    ) -> Array:
        """Return the input. Raises RequestError."""
        name, offset, byte_size = self._part
        content = regions.get(name).read(offset, byte_size)
        if not self._checked:
            return np.ndarray(self._shape, self._dtype, content)
        source = self._source
        return elements(content, source.expected, source.field).reshape(source.shape)


def behind(source: Source, offset: int, size: int) -> Reader:
    """Return what reads an input of `size` bytes that was there once."""
    if source.expected.datatype.name in _CHECKED:
        return CheckedBehind(source, offset, size)
    return Behind(source, offset)


def can_be_listed(source: Source) -> bool:
    """Return whether `Listed` reads inputs of this type."""
    return source.expected.datatype.name not in HELD_OTHERWISE


class Plan(Generic[Answers]):
    """How requests that ask one question are read."""

    __slots__ = (
        "_answers",
        "_between",
        "_follows",
        "_in_regions",
        "_levels",
        "_outputs",
        "_parameters",
        "_readers",
        "_rows",
        "_wanted",
    )

    def __init__(
        self,
        asked: Question,
        request: InferRequest[Answers],
        readers: Sequence[Reader],
        follows: int,
        limits: Limits,
        levels: int,
        between: Sequence[tuple[int, bytes]] = (),
    ) -> None:
        """Make the plan of `request`, which was read precisely and asked `asked`.

        `readers` are in the order of `asked`. Behind what is remembered there are `follows` bytes, of which
        those `between` tensors, each by its distance, are always the same.
        """
        # Nothing else of the question: its sources may refer to the data of the one request.
        self._parameters = asked.parameters
        self._outputs = asked.outputs
        self._answers = request.answers
        self._rows = request.rows
        self._readers = tuple([readers[place] for place in asked.order])
        self._follows = follows
        self._between = tuple(between)
        self._levels = levels
        self._wanted = request_parameters(asked.parameters, {}, levels, limits.max_timeout_ns)
        self._in_regions = any(output.part is not None for output in asked.outputs)

    def request(
        self,
        version: LoadedVersion,
        content: bytes,
        base: int,
        lists: Sequence[bytes],
        headers: Mapping[bytes, bytes],
        regions: SharedMemoryRegions,
        limits: Limits,
        levels: int,
        request_id: str,
    ) -> InferRequest[Answers] | None:
        """Return the request, of which `content` up to `base` is what is remembered; None if it does not fit.

        The request is not changed by whatever this returns, and can be read precisely.
        """
        if base + self._follows != len(content):
            return None
        for offset, same in self._between:
            if not content.startswith(same, base + offset):
                return None
        wanted, outputs = self._wanted, self._outputs
        try:
            if TENANT_HEADER in headers or PRIORITY_HEADER in headers or levels != self._levels:
                wanted = request_parameters(self._parameters, headers, levels, limits.max_timeout_ns)
            held = held_regions(outputs, regions) if self._in_regions else ()
            readers = self._readers
            if len(readers) == 1:
                inputs: tuple[Array, ...] = (readers[0](content, base, lists, regions),)
            else:
                inputs = tuple([read(content, base, lists, regions) for read in readers])
        except _UNFIT:
            return None
        return InferRequest(version, inputs, self._rows, outputs, request_id, wanted, self._answers, held)


Kept = TypeVar("Kept")


class Remembered(Generic[Kept]):
    """What is kept for the versions that are served, by bytes; that of a retired version goes with it."""

    def __init__(self, most: int = 256, longest: int = 4_096) -> None:
        """Keep up to `most` things for each version, by up to `longest` bytes."""
        self._most = most
        self._longest = longest
        self._of_version: dict[int, dict[Key, Kept]] = {}
        """By the identity of the version, while it lives."""

    def find(self, version: LoadedVersion, key: Key) -> Kept | None:
        """Return what is kept for a version by these bytes."""
        if self.too_long(key):
            return None
        known = self._of_version.get(id(version))
        return None if known is None else known.get(key)

    def keep(self, version: LoadedVersion, key: Key, kept: Kept) -> None:
        """Keep something. It must not refer to the version."""
        if self.too_long(key):
            return
        known = self._of_version.get(id(version))
        if known is None:
            weakref.finalize(version, self._of_version.pop, id(version), None)
            known = self._of_version[id(version)] = {}
        if len(known) >= self._most:
            known.clear()
        known[key] = kept

    def count(self, version: LoadedVersion) -> int:
        """Return how many things are kept for a version."""
        return len(self._of_version.get(id(version), ()))

    def clear(self) -> None:
        """Forget all."""
        for known in self._of_version.values():
            known.clear()

    def too_long(self, key: Key) -> bool:
        """Return whether nothing is kept by `key`, so that it need not be looked for."""
        size = len(key) if isinstance(key, bytes) else sum([len(piece) for piece in key])
        return size > self._longest
