"""The models that are served, one input for each, and what ONNX Runtime makes of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnxruntime

from bench.exchange import Floats
from tools.models import generate

SEED = 20261130
TOLERANCE = 1e-3
"""Relative, and absolute to the largest value. A batch of another size may sum in another order."""


@dataclass(frozen=True)
class Shape:
    """Input and output of a model without the batch dimension; both are named `input` and `output`."""

    input: tuple[int, ...]
    output: tuple[int, ...]


SHAPES = {
    "mlp": Shape((64,), (10,)),
    "resnet50": Shape((3, 224, 224), (1000,)),
    "add": Shape((16,), (16,)),
    "slow": Shape((16,), (16,)),
}


@dataclass(frozen=True)
class Sample:
    """One row of input of one model."""

    model: str
    file: Path

    @property
    def shape(self) -> Shape:
        """The model's shapes."""
        return SHAPES[self.model]

    @cached_property
    def row(self) -> Floats:
        """The input, float32 [1, …]: the same for a model in every run."""
        return np.random.default_rng(SEED).standard_normal((1, *self.shape.input), np.float32)

    @cached_property
    def answer(self) -> Floats:
        """What ONNX Runtime makes of the row, called directly; float32 [1, …]."""
        session = onnxruntime.InferenceSession(self.file, providers=["CPUExecutionProvider"])
        output: Floats = session.run(None, {"input": self.row})[0]
        return output

    def accepts(self, output: Floats) -> bool:
        """Return whether `output` is the answer, up to the order of summation."""
        scale = float(np.abs(self.answer).max())
        return output.size == self.answer.size and bool(
            np.allclose(output.ravel(), self.answer.ravel(), rtol=TOLERANCE, atol=TOLERANCE * scale)
        )


def samples(names: Sequence[str], folder: Path) -> dict[str, Sample]:
    """Return the samples of these models by name; a missing model file is generated into `folder`."""
    return {name: Sample(name, generate(name, folder)) for name in names}
