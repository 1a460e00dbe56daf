"""A small builder over `onnx.helper`: seeded weights, numbered nodes, checked result."""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 9
FLOAT = TensorProto.FLOAT


class Graph:
    """One ONNX graph under construction. Weights come from `seed` alone, in the order they are asked for."""

    def __init__(self, name: str, seed: int) -> None:
        self._name = name
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, shape: list[int | str], dtype: int = FLOAT) -> str:
        """Declare an input; a string in `shape` is a dynamic dimension."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name: str, shape: list[int | str], dtype: int = FLOAT) -> str:
        """Declare an output; a node must write to `name`."""
        self._outputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def constant(self, name: str, values: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> str:
        """Add an initializer with these values."""
        self._constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def normal(self, name: str, deviation: float, shape: tuple[int, ...]) -> str:
        """Add an initializer of seeded normal values with mean 0."""
        return self.constant(name, self._random.normal(0.0, deviation, shape))

    def node(self, operator: str, inputs: list[str], output: str | None = None, **attributes: Any) -> str:
        """Add a node with one output and return the output's name."""
        name = f"{operator}_{len(self._nodes)}"
        result = output or f"{name}_out"
        self._nodes.append(helper.make_node(operator, inputs, [result], name=name, **attributes))
        return result

    def build(self) -> onnx.ModelProto:
        """Return the finished model, checked by onnx."""
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, self._constants)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="mcp2026-models"
        )
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model)
        return model
