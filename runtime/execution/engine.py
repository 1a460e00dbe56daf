"""Two threads that turn batches into results: one runs the model, one assembles the next inputs meanwhile.

The event loop only hands jobs over. ONNX Runtime and large copies release Python's lock, so the loop goes
on reading and answering while a model runs.
"""

import queue
import threading
import time
from collections.abc import Callable

from mcp2026.runtime.execution.tensor_cache import Array, Bound, Shapes
from mcp2026.runtime.model.loaded import LoadedVersion

ASSEMBLE_AHEAD_BYTES = 256 * 1024
"""Smaller inputs are gathered by the engine itself: the copy is cheaper than waking a second thread."""


class Job:
    """One batch on its way through the engine. Belongs to one thread at a time, except `assemble`."""

    __slots__ = (
        "_bound",
        "_lock",
        "batch_id",
        "error",
        "finished_ns",
        "outputs",
        "parts",
        "requests",
        "rows",
        "shapes",
        "started_ns",
        "version",
    )

    def __init__(
        self, batch_id: int, version: LoadedVersion, shapes: Shapes, parts: list[tuple[Array, ...]], rows: int
    ) -> None:
        self.batch_id = batch_id
        self.version = version
        self.shapes = shapes
        self.parts = parts
        """Per request its inputs, in the order of the batch."""
        self.requests = len(parts)
        self.rows = rows
        self.outputs: list[Array] = []
        self.error: Exception | None = None
        self.started_ns = 0
        self.finished_ns = 0
        self._bound: Bound | None = None
        self._lock = threading.Lock()

    @property
    def input_bytes(self) -> int:
        """Bytes that `assemble` will copy."""
        return sum(array.nbytes for part in self.parts for array in part)

    def assemble(self) -> Bound:
        """Copy the parts into one buffer per input, unless that has happened already."""
        with self._lock:
            if self._bound is None:
                arena = self.version.tensors.take(self.shapes)
                try:
                    bound = arena.bound(self.rows)
                    gather(self.parts, bound.inputs, whole=not self.version.signature.shared)
                except BaseException:
                    self.version.tensors.give_back(arena)
                    raise
                self._bound = bound
                self.parts = []  # the requests' own arrays are not needed any more
            return self._bound

    def run(self) -> None:
        """Execute the batch; `outputs` or `error` is set afterwards. Never raises."""
        try:
            bound = self.assemble()
            self.started_ns = time.monotonic_ns()
            self.version.run(bound.binding)
            self.outputs = bound.outputs()
            if self.version.signature.shared and not self.version.signature.ahead:
                check_rows(self.outputs, self.rows)
        except Exception as error:
            self.error = error
        self.finished_ns = time.monotonic_ns()

    def release(self) -> None:
        """Give the buffers back. `outputs` must not be read after this."""
        self.outputs = []
        if self._bound is not None:
            self._bound.forget_outputs()
            self.version.tensors.give_back(self._bound.arena)
            self._bound = None


def gather(parts: list[tuple[Array, ...]], buffers: list[Array], *, whole: bool) -> None:
    """Write the requests' rows one after another into the buffers, the only copy on the way in."""
    if whole:
        for buffer, array in zip(buffers, parts[0], strict=True):
            buffer[...] = array
        return
    for index, buffer in enumerate(buffers):
        row = 0
        for part in parts:
            array = part[index]
            end = row + array.shape[0]
            buffer[row:end] = array
            row = end


def check_rows(outputs: list[Array], rows: int) -> None:
    """Raise unless every output has one row for each that went in: else no caller could be told its own.

    The probe at load cannot rule out that the rows an output has depend on the values that go in.
    """
    for array in outputs:
        if array.shape[:1] != (rows,):
            raise ValueError(f"an output has shape {list(array.shape)} for {rows} rows")


class Engine:
    """Runs jobs in the order in which they are submitted."""

    def __init__(self, on_done: Callable[[Job], None]) -> None:
        """Call `on_done` with each job, in the engine's thread, when it has run."""
        self._on_done = on_done
        self._to_run: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._to_assemble: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name="engine", daemon=True),
            threading.Thread(target=self._assemble, name="assembler", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job, *, engine_is_busy: bool) -> None:
        """Queue `job`; if others run before it, its inputs are assembled meanwhile."""
        if engine_is_busy and job.input_bytes >= ASSEMBLE_AHEAD_BYTES:
            self._to_assemble.put(job)
        self._to_run.put(job)

    def close(self) -> None:
        """Finish what was submitted, then stop the threads."""
        self._to_assemble.put(None)
        self._to_run.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (job := self._to_run.get()) is not None:
            job.run()
            self._on_done(job)

    def _assemble(self) -> None:
        while (job := self._to_assemble.get()) is not None:
            if job.finished_ns:
                continue  # the engine was faster
            try:
                job.assemble()
            except Exception as error:
                del error
