"""ResNet-50 v1.5 as torchvision counts it: 53 convolutions, 25,557,032 parameters.

BatchNormalization stands explicitly in the graph (running mean and variance are not parameters). The
weights are random; the residual branches are scaled down so that activations stay finite.
"""

import numpy as np
import onnx

from tools.models.graph import Graph

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Width, blocks and first stride of each stage."""
EXPANSION = 4
CLASSES = 1000


class _Layers:
    """Numbers the convolutions of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._count = 0

    def convolution(
        self, x: str, channels: tuple[int, int], kernel: int, stride: int = 1, gain: float = 1.0
    ) -> str:
        """Add convolution and batch normalisation; `channels` are (in, out)."""
        graph, (fan_in, fan_out) = self._graph, channels
        name = f"conv{self._count}"
        self._count += 1
        deviation = gain * float(np.sqrt(2.0 / (fan_in * kernel * kernel)))
        weight = graph.normal(f"{name}.weight", deviation, (fan_out, fan_in, kernel, kernel))
        pads = [kernel // 2] * 4
        y = graph.node("Conv", [x, weight], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads)
        parameters = [
            graph.constant(f"{name}.bn.scale", np.ones(fan_out)),
            graph.normal(f"{name}.bn.bias", 0.01, (fan_out,)),
            graph.constant(f"{name}.bn.mean", np.zeros(fan_out)),
            graph.constant(f"{name}.bn.variance", np.ones(fan_out)),
        ]
        return graph.node("BatchNormalization", [y, *parameters], epsilon=1e-5)


def resnet50() -> onnx.ModelProto:
    """Build the graph: input [N, 3, 224, 224], output [N, 1000], float32."""
    graph = Graph("resnet50", seed=2026_50)
    layers = _Layers(graph)
    graph.input("input", ["N", 3, 224, 224])
    graph.output("output", ["N", CLASSES])

    x = graph.node("Relu", [layers.convolution("input", (3, 64), 7, 2)])
    x = graph.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    width_in = 64
    for width, blocks, first_stride in STAGES:
        width_out = width * EXPANSION
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            y = graph.node("Relu", [layers.convolution(x, (width_in, width), 1)])
            y = graph.node("Relu", [layers.convolution(y, (width, width), 3, stride)])
            y = layers.convolution(y, (width, width_out), 1, gain=0.3)
            if block == 0:
                x = layers.convolution(x, (width_in, width_out), 1, stride, gain=0.7)
            x = graph.node("Relu", [graph.node("Add", [y, x])])
            width_in = width_out
    x = graph.node("Flatten", [graph.node("GlobalAveragePool", [x])], axis=1)
    weight = graph.normal("fc.weight", 0.01, (CLASSES, width_in))
    bias = graph.constant("fc.bias", np.zeros(CLASSES))
    graph.node("Gemm", [x, weight, bias], "output", transB=1)
    return graph.build()
