"""Models of every datatype in a repository, and a server for them."""

from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from tests.contract.runtime.server_process import Server

ONNX_TYPES = {
    "BOOL": TensorProto.BOOL,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "FP16": TensorProto.FLOAT16,
    "BF16": TensorProto.BFLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BYTES": TensorProto.STRING,
}


def echo_model(folder: Path, name: str, datatype: str, *shape: int | None) -> Path:
    """Write a model that returns its input x as y."""
    kind = ONNX_TYPES[datatype]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "echo",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, shape)],
    )
    return _save(graph, folder / name)


def sums_model(folder: Path, name: str) -> Path:
    """Write a model of two inputs and two outputs: sum = a + b and difference = a - b, all FP32 [-1, 4]."""
    shape, kind = [None, 4], TensorProto.FLOAT
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["a", "b"], ["sum"]),
            helper.make_node("Sub", ["a", "b"], ["difference"]),
        ],
        "sums",
        [helper.make_tensor_value_info(tensor, kind, shape) for tensor in ("a", "b")],
        [helper.make_tensor_value_info(tensor, kind, shape) for tensor in ("sum", "difference")],
    )
    path = _save(graph, folder / name)
    (folder / name / "config.pbtxt").write_text("max_batch_size: 8\ndynamic_batching {}\n")
    return path


def _save(graph: Any, folder: Path) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = folder / "1/model.onnx"
    path.parent.mkdir(parents=True)
    onnx.save(model, path)
    return path


def serve(folder: Path, names: list[str], *arguments: str) -> Server:
    """Start a server for the models `names` in the repository `folder`."""
    return Server(
        *("--model-repository", str(folder), "--model-control", "explicit", "--load-model", ",".join(names)),
        *("--threads", "1", *arguments),
    )


def address(server: Server, protocol: str) -> str:
    """Return where clients of `protocol`, "http" or "grpc", reach the server."""
    return f"127.0.0.1:{server.grpc_port if protocol == 'grpc' else server.port}"
