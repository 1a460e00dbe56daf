"""One batch on its way through an engine: gathered into buffers, run, handed back."""

import threading
import time
from typing import Any

import numpy as np

from mcp2026.runtime.execution import strings
from mcp2026.runtime.execution.tensor_cache import Array, Bound, Shapes
from mcp2026.runtime.model.loaded import LoadedVersion


class Job:
    """Belongs to one thread at a time, except `assemble`."""

    __slots__ = (
        "_bound",
        "_lock",
        "_unbound",
        "assemble_ns",
        "batch",
        "cache_hit",
        "error",
        "finished_ns",
        "outputs",
        "parts",
        "rows",
        "run_rows",
        "shapes",
        "started_ns",
        "version",
    )

    def __init__(
        self,
        version: LoadedVersion,
        shapes: Shapes,
        parts: list[tuple[Array, ...]],
        rows: int,
        run_rows: int = 0,
        batch: Any = None,
    ) -> None:
        """Run `rows` rows, filled up with zeros to `run_rows`; `parts` are inputs in the order of the batch.

        `batch` belongs to the caller.
        """
        self.version = version
        self.shapes = shapes
        self.parts = parts
        self.rows = rows
        self.run_rows = max(rows, run_rows)
        self.batch = batch
        self.outputs: list[Array] = []
        """Rows of the result; valid until `release`. Rows of the padding follow at the end."""
        self.error: Exception | None = None
        self.assemble_ns = 0
        self.started_ns = 0
        self.finished_ns = 0
        self.cache_hit = False
        """Its buffers were used before."""
        self._bound: Bound | None = None
        self._unbound: list[Array] | None = None
        self._lock = threading.Lock()

    @property
    def run_ns(self) -> int:
        """How long the model ran; 0 if it did not."""
        return self.finished_ns - self.started_ns if self.started_ns else 0

    def assemble(self) -> None:
        """Copy the parts into one buffer per input, unless that has happened already."""
        with self._lock:
            if self._bound is not None or self._unbound is not None:
                return
            began = time.monotonic_ns()
            version = self.version
            if version.bindable:
                self._bound = self._gather_into_arena()
            else:
                self._unbound = strings.gather(
                    version.signature, self.parts, self.run_rows, whole=not version.signature.shared
                )
            self.parts = []  # the requests' own arrays are not needed any more
            self.assemble_ns = time.monotonic_ns() - began

    def _gather_into_arena(self) -> Bound:
        version = self.version
        arena = version.tensors.take(self.shapes)
        self.cache_hit = arena.used
        try:
            bound = arena.bound(self.run_rows)
            gather(self.parts, bound.inputs, self.rows, whole=not version.signature.shared)
        except BaseException:
            version.tensors.give_back(arena)
            raise
        return bound

    def run(self) -> None:
        """Execute the batch; `outputs` or `error` is set afterwards. Never raises."""
        version = self.version
        try:
            self.assemble()
            self.started_ns = time.monotonic_ns()
            if self._bound is not None:
                version.run(self._bound.binding)
                self.outputs = self._bound.outputs()
            else:
                assert self._unbound is not None
                self.outputs = strings.run(version.session, version.signature, self._unbound)
            if version.signature.shared and not (version.signature.ahead and version.bindable):
                check_rows(self.outputs, self.run_rows)
        except Exception as error:
            self.error = error
        self.finished_ns = time.monotonic_ns()

    def release(self) -> None:
        """Give the buffers back. `outputs` must not be read after this."""
        self.outputs = []
        self._unbound = None
        if self._bound is not None:
            self._bound.forget_outputs()
            self.version.tensors.give_back(self._bound.arena)
            self._bound = None


def gather(parts: list[tuple[Array, ...]], buffers: list[Array], rows: int, *, whole: bool) -> None:
    """Write the requests' rows one after another into the buffers, the only copy on the way in.

    Rows from `rows` on become zero.
    """
    if whole or (len(parts) == 1 and (not buffers or rows == len(buffers[0]))):
        for buffer, array in zip(buffers, parts[0], strict=True):
            buffer[...] = array
        return
    for index, buffer in enumerate(buffers):
        np.concatenate([part[index] for part in parts], out=buffer[:rows])
        buffer[rows:] = 0


def check_rows(outputs: list[Array], rows: int) -> None:
    """Raise unless every output has one row for each that went in: else no caller could be told its own.

    The probe at load cannot rule out that the rows an output has depend on the values that go in.
    """
    for array in outputs:
        if array.shape[:1] != (rows,):
            raise ValueError(f"an output has shape {list(array.shape)} for {rows} rows")
