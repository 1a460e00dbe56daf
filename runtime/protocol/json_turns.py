"""Large tensors in JSON, in slices: between two of them the event loop serves others.

Parsers hold Python's lock, so a thread would not help: the loop would wait for it all the same. A list of
numbers can be cut at any comma, and each piece takes well under a millisecond.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

import msgspec
import numpy as np

from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.protocol.json_form import layout

LARGE_BODY = 64 * 1024
"""Bytes of JSON; a body beyond this is read in turns."""
LARGE_VALUES = 8 * 1024
"""Values of one output; an answer with more is written in turns."""
MAX_WAITING_BYTES = 256 * 1024 * 1024

Result = TypeVar("Result")
InTurns = Generator[None, None, Result]
"""Stops wherever something else may come between."""


def at_once(work: InTurns[Result]) -> Result:
    """Return the result of `work` without letting anything come between."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: Result = end.value
            return result


class Turns:
    """Works that take turns with the event loop: one slice in each round, first come first served."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[InTurns[None], int]] = deque()
        self._bytes = 0

    def add(self, work: InTurns[None], size: int) -> bool:
        """Begin `work`, which raises nothing and holds `size` bytes. False: too much waits already."""
        if self._waiting and self._bytes + size > MAX_WAITING_BYTES:
            return False
        self._bytes += size
        self._waiting.append((work, size))
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._turn)
        return True

    def _turn(self) -> None:
        work, size = self._waiting[0]
        try:
            next(work)
        except StopIteration:
            self._waiting.popleft()
            self._bytes -= size
        finally:
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._turn)


def read_list(
    text: bytes, dtype: np.dtype[np.generic], decode: Callable[[bytes], list[object]]
) -> InTurns[Array | None]:
    """Return a list of JSON as a flat array; None if it is not a flat list that `dtype` can hold.

    `text` is valid JSON, and `decode` decodes a list of elements of the right kind.
    """
    slices = slices_of_list(text)
    if slices is None:
        return None
    pieces = []
    for piece in slices:
        try:
            values = decode(piece)
            pieces.append(struct.pack(layout(dtype, len(values)), *values))
        except (msgspec.DecodeError, OverflowError, struct.error):
            return None
        yield
    return np.frombuffer(b"".join(pieces), dtype)


def slices_of_list(text: bytes) -> Iterator[bytes] | None:
    """Return a list of JSON as shorter ones, in order; None if it holds texts, lists or objects.

    `text` is valid JSON.
    """
    if any(sign in text for sign in (b'"', b"{")) or text.count(b"[") != 1:
        return None
    return _slices(text)


def _slices(text: bytes) -> Iterator[bytes]:
    start = 1
    while start < len(text):
        comma = text.find(b",", start + LARGE_BODY)
        end = comma if comma >= 0 else len(text) - 1
        yield b"[%b]" % text[start:end]
        start = end + 1


def write_list(write: Callable[[Array], bytes], array: Array) -> InTurns[bytes]:
    """Return what `write` makes of the values of `array`, a list in JSON."""
    flat = array.ravel()
    if flat.size <= LARGE_VALUES or flat.dtype.kind == "O":
        return write(flat)
    pieces = []
    for start in range(0, flat.size, LARGE_VALUES):
        pieces.append(write(flat[start : start + LARGE_VALUES])[1:-1])
        yield
    return b"[%b]" % b",".join(pieces)
