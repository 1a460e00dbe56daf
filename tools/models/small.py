"""Small models: one for the benchmarks' overhead, and one for each way in which a model can differ.

Each says in its first line what it is for. All have a dynamic batch dimension `N` unless they say so.
"""

import numpy as np
import onnx
from onnx import TensorProto

from tools.models.graph import Graph


def mlp() -> onnx.ModelProto:
    """Build a perceptron 64 → 256 → 256 → 10: a model so cheap that the server is what is measured."""
    graph = Graph("mlp", seed=2026_1)
    x, width = graph.input("input", ["N", 64]), 64
    graph.output("output", ["N", 10])
    for index, out in enumerate((256, 256, 10)):
        weight = graph.normal(f"weight{index}", float(np.sqrt(2.0 / width)), (width, out))
        bias = graph.normal(f"bias{index}", 0.01, (out,))
        if index == 2:
            graph.node("Gemm", [x, weight, bias], "output")
        else:
            x = graph.node("Relu", [graph.node("Gemm", [x, weight, bias])])
        width = out
    return graph.build()


def add() -> onnx.ModelProto:
    """Build input + 1 over 16 values: every answer can be checked by eye."""
    graph = Graph("add", seed=0)
    graph.input("input", ["N", 16])
    graph.output("output", ["N", 16])
    graph.node("Add", ["input", graph.constant("one", [1.0])], "output")
    return graph.build()


def add_hundred() -> onnx.ModelProto:
    """Build input + 100 over 16 values: tells itself apart from `add` as a second version."""
    graph = Graph("add-hundred", seed=0)
    graph.input("input", ["N", 16])
    graph.output("output", ["N", 16])
    graph.node("Add", ["input", graph.constant("hundred", [100.0])], "output")
    return graph.build()


def slow() -> onnx.ModelProto:
    """Build 120 products with one 1024 x 1024 matrix: about 0.03 s a run on one idle core, 4 MB."""
    graph = Graph("slow", seed=2026_2)
    graph.input("input", ["N", 16])
    graph.output("output", ["N", 16])
    x = graph.node("MatMul", ["input", graph.normal("widen", 0.25, (16, 1024))])
    square = graph.normal("square", float(1 / np.sqrt(1024)), (1024, 1024))
    for _ in range(120):
        x = graph.node("Tanh", [graph.node("MatMul", [x, square])])
    graph.node("MatMul", [x, graph.normal("narrow", 0.02, (1024, 16))], "output")
    return graph.build()


def integers() -> onnx.ModelProto:
    """Build int64 [N, 4] doubled."""
    graph = Graph("integers", seed=0)
    graph.input("input", ["N", 4], TensorProto.INT64)
    graph.output("output", ["N", 4], TensorProto.INT64)
    graph.node("Mul", ["input", graph.constant("two", [2], np.int64)], "output")
    return graph.build()


def halves() -> onnx.ModelProto:
    """Build float16 [N, 4] plus one half."""
    graph = Graph("halves", seed=0)
    graph.input("input", ["N", 4], TensorProto.FLOAT16)
    graph.output("output", ["N", 4], TensorProto.FLOAT16)
    graph.node("Add", ["input", graph.constant("half", [0.5], np.float16)], "output")
    return graph.build()


def booleans() -> onnx.ModelProto:
    """Build bool [N, 4] negated."""
    graph = Graph("booleans", seed=0)
    graph.input("input", ["N", 4], TensorProto.BOOL)
    graph.output("output", ["N", 4], TensorProto.BOOL)
    graph.node("Not", ["input"], "output")
    return graph.build()


def pair() -> onnx.ModelProto:
    """Build two inputs and two outputs: sum and difference, each [N, 4]."""
    graph = Graph("pair", seed=0)
    graph.input("left", ["N", 4])
    graph.input("right", ["N", 4])
    graph.output("sum", ["N", 4])
    graph.output("difference", ["N", 4])
    graph.node("Add", ["left", "right"], "sum")
    graph.node("Sub", ["left", "right"], "difference")
    return graph.build()


def fixed() -> onnx.ModelProto:
    """Build [2, 8] negated: no dynamic batch dimension, so requests run one at a time."""
    graph = Graph("fixed", seed=0)
    graph.input("input", [2, 8])
    graph.output("output", [2, 8])
    graph.node("Neg", ["input"], "output")
    return graph.build()


def mixing() -> onnx.ModelProto:
    """Build each row minus the mean of all rows: batching requests together would change their answers."""
    graph = Graph("mixing", seed=0)
    graph.input("input", ["N", 4])
    graph.output("output", ["N", 4])
    mean = graph.node("ReduceMean", ["input"], axes=[0], keepdims=1)
    graph.node("Sub", ["input", mean], "output")
    return graph.build()


def lookup() -> onnx.ModelProto:
    """Build a table of 10 rows read by int64 [N, 1]: an index of 10 makes the execution fail."""
    graph = Graph("lookup", seed=0)
    graph.input("input", ["N", 1], TensorProto.INT64)
    graph.output("output", ["N", 1, 2])
    table = graph.constant("table", np.arange(20, dtype=np.float32).reshape(10, 2))
    graph.node("Gather", [table, "input"], "output", axis=0)
    return graph.build()


def anysize() -> onnx.ModelProto:
    """Build input + 1 over [N, length] with both dynamic: only equal lengths may share a batch."""
    graph = Graph("anysize", seed=0)
    graph.input("input", ["N", "length"])
    graph.output("output", ["N", "length"])
    graph.node("Add", ["input", graph.constant("one", [1.0])], "output")
    return graph.build()


def reciprocal() -> onnx.ModelProto:
    """Build 1 / input over [N, 4]: gives infinities and NaN, which JSON has no numbers for."""
    graph = Graph("reciprocal", seed=0)
    graph.input("input", ["N", 4])
    graph.output("output", ["N", 4])
    graph.node("Reciprocal", ["input"], "output")
    return graph.build()
