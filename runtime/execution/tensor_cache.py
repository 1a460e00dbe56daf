"""Input and output buffers that are used again and again, bound to a session once.

An arena is memory for one full batch of one lane. The first `rows` rows of its buffers are bound per
number of rows; pages that no batch reached were never touched, so a large arena costs what was used.
"""

import ctypes
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from mcp2026.runtime.model.signature import Signature, TensorSpec

Shapes = tuple[tuple[int, ...], ...]
Array = np.ndarray[Any, np.dtype[Any]]

BFLOAT16 = 16
"""`TensorProto.DataType` of ONNX."""

IDLE_BYTES = 512 * 1024 * 1024
"""Most memory that unused arenas may keep; the lane that was idle longest gives way."""


_Parts = tuple[Any, list[Array], list[Array] | None]
"""A binding, and the inputs and outputs that it is of."""


class Bound:
    """Buffers of exactly one number of rows, bound to the session."""

    __slots__ = ("_outputs", "arena", "binding", "inputs")

    def __init__(
        self, arena: "Arena", binding: Any, inputs: list[Array], outputs: list[Array] | None
    ) -> None:
        self.arena = arena
        self.binding = binding
        self.inputs = inputs
        self._outputs = outputs

    def outputs(self) -> list[Array]:
        """Return the results of the last run; they are valid until the arena is given back."""
        if self._outputs is not None:
            return self._outputs
        return self.arena.read_outputs(self.binding)

    def forget_outputs(self) -> None:
        """Let go of what the last run allocated; else the next one would have to give the same shapes."""
        if self._outputs is None:
            self.binding.clear_binding_outputs()
            self.arena.bind_outputs(self.binding)


class Arena:
    """Memory for one batch of one lane at a time."""

    def __init__(self, session: Any, signature: Signature, shapes: Shapes, capacity: int | None) -> None:
        """Allocate for up to `capacity` rows; None: `shapes` are whole, there is no batch dimension."""
        self.shapes = shapes
        self._session = session
        self._signature = signature
        self._inputs = [
            np.empty(shape if capacity is None else (capacity, *shape), spec.dtype)
            for spec, shape in zip(signature.inputs, shapes, strict=True)
        ]
        fixed = signature.output_shapes(capacity)
        self._outputs: list[Array] | None = None
        if fixed is not None:
            self._outputs = [
                np.empty(shape, spec.dtype) for spec, shape in zip(signature.outputs, fixed, strict=True)
            ]
        self.used = False
        """It held a batch before."""
        self._whole = capacity is None
        self._parts: dict[int, _Parts] = {}
        """Per number of rows. Not `Bound` itself, which holds the arena: the session that both hold would
        outlive its model until the collector of cycles comes."""
        self.nbytes = sum(buffer.nbytes for buffer in (*self._inputs, *(self._outputs or ())))

    def bound(self, rows: int) -> Bound:
        """Return the buffers' first `rows` rows, bound; made once per number of rows."""
        parts = self._parts.get(rows)
        if parts is None:
            parts = self._parts[rows] = self._bind(rows)
        return Bound(self, *parts)

    def _bind(self, rows: int) -> _Parts:
        binding = self._session.io_binding()
        inputs = [buffer if self._whole else buffer[:rows] for buffer in self._inputs]
        for spec, buffer in zip(self._signature.inputs, inputs, strict=True):
            binding.bind_ortvalue_input(spec.name, value_over(spec, buffer))
        outputs: list[Array] | None = None
        if self._outputs is not None:
            outputs = [buffer if self._whole else buffer[:rows] for buffer in self._outputs]
            for spec, buffer in zip(self._signature.outputs, outputs, strict=True):
                binding.bind_ortvalue_output(spec.name, value_over(spec, buffer))
        else:
            self.bind_outputs(binding)
        return binding, inputs, outputs

    def bind_outputs(self, binding: Any) -> None:
        """Let ONNX Runtime allocate the outputs of the next run."""
        for spec in self._signature.outputs:
            binding.bind_output(spec.name)

    def read_outputs(self, binding: Any) -> list[Array]:
        """Return what ONNX Runtime allocated for the outputs of the last run."""
        if all(spec.datatype != "BF16" for spec in self._signature.outputs):
            return list(binding.copy_outputs_to_cpu())
        return [
            bits_of(value) if spec.datatype == "BF16" else value.numpy()
            for spec, value in zip(self._signature.outputs, binding.get_outputs(), strict=True)
        ]


def value_over(spec: TensorSpec, buffer: Array) -> Any:
    """Return an ONNX Runtime value that is the memory of `buffer`."""
    from onnxruntime import OrtValue

    if spec.datatype == "BF16":
        return OrtValue.ortvalue_from_numpy_with_onnx_type(buffer, BFLOAT16)
    return OrtValue.ortvalue_from_numpy(buffer)


def bits_of(value: Any) -> Array:
    """Copy 16-bit elements out of a value in CPU memory, for which numpy has no type."""
    shape = tuple(value.shape())
    return np.frombuffer(ctypes.string_at(value.data_ptr(), 2 * math.prod(shape)), np.uint16).reshape(shape)


class TensorCache:
    """The arenas of one loaded version. Safe to call from several threads."""

    def __init__(
        self, make: Callable[[Shapes], Arena], *, enabled: bool, idle_bytes: int = IDLE_BYTES
    ) -> None:
        self._make = make
        self._enabled = enabled
        self._idle_limit = idle_bytes
        self._idle: OrderedDict[Shapes, list[Arena]] = OrderedDict()
        self._lock = threading.Lock()
        self.idle_bytes = 0
        self.hits = 0
        self.misses = 0

    def take(self, shapes: Shapes) -> Arena:
        """Return an arena that nobody else uses until it is given back."""
        with self._lock:
            idle = self._idle.get(shapes)
            if idle:
                arena = idle.pop()
                if not idle:
                    del self._idle[shapes]
                self.idle_bytes -= arena.nbytes
                self.hits += 1
                return arena
            self.misses += 1
        return self._make(shapes)

    def give_back(self, arena: Arena) -> None:
        """Keep `arena` for the next batch of its lane, if the cache is on and has room."""
        arena.used = True
        if not self._enabled or arena.nbytes > self._idle_limit:
            return
        with self._lock:
            self._idle.setdefault(arena.shapes, []).append(arena)
            self._idle.move_to_end(arena.shapes)
            self.idle_bytes += arena.nbytes
            while self.idle_bytes > self._idle_limit:
                shapes, longest_idle = next(iter(self._idle.items()))
                self.idle_bytes -= longest_idle.pop().nbytes
                if not longest_idle:
                    del self._idle[shapes]
