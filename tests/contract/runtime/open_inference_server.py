"""The protocol on real sockets, served by a thread of the test: real models, real engine, both transports."""

import asyncio
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import onnx
import uvloop
from onnx import TensorProto, helper

from mcp2026.api.serving import Batching, ServingConfig, single_version
from mcp2026.runtime.changes import (
    Change,
    Changed,
    LoadModel,
    RegisterRegion,
    UnloadModel,
    UnregisterRegion,
)
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.health import Health, Phase
from mcp2026.runtime.inference import InferenceService
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics, block_sizes
from mcp2026.runtime.metrics.shared_blocks import create_shared_memory
from mcp2026.runtime.model.loading import load_model
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.protocol.connections import ConnectionLimits, Connections
from mcp2026.runtime.protocol.exchange import Response
from mcp2026.runtime.protocol.listener import connection_factory
from mcp2026.runtime.protocol.open_inference.administration import Administration
from mcp2026.runtime.protocol.open_inference.errors import error_text
from mcp2026.runtime.protocol.open_inference.grpc_service import OpenInferenceService
from mcp2026.runtime.protocol.open_inference.http_api import OpenInferenceApi
from mcp2026.runtime.protocol.open_inference.requests import Limits
from mcp2026.runtime.shared_memory.regions import SharedMemoryRegions

PATIENCE = 60.0

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
    return _save(graph, folder / f"{name}.onnx")


def sums_model(folder: Path, name: str) -> Path:
    """Write a model of two inputs and two outputs: sum = a + b, difference = a - b, all FP32 [-1, 4]."""
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
    return _save(graph, folder / f"{name}.onnx")


def _save(graph: Any, path: Path) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, path)
    return path


class _Mount(OpenInferenceApi):
    """The whole application of a port: the protocol alone."""

    closing = False

    def protocol_error(self, status: int, message: str) -> Response:
        return error_text(status, message)


class OpenInferenceServer:
    """Serves the models of a folder on a free port, over HTTP and gRPC, until it is closed."""

    def __init__(self, folder: Path, names: list[str], max_body_bytes: int = 8 * 1024 * 1024) -> None:
        self._folder = folder
        self._names = names
        self._limits = ConnectionLimits(max_body_bytes=max_body_bytes)
        self.health = Health()
        self.port = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._started.wait(PATIENCE)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)

    def _config(self, name: str) -> ServingConfig:
        return single_version(str(self._folder / f"{name}.onnx"), Batching(max_batch_size=8))

    def _load(self, name: str) -> None:
        if name not in self._names:
            raise RequestError(ErrorCode.NOT_FOUND, f"no model {name!r}")
        config = self._config(name)
        self._metrics.claim(config.model, ("1",), config.revision)
        model = load_model(config, 1, "cpu", self._metrics.version)
        self._store.put(model)
        self._service.serve(model)

    def _change(self, change: Change, changed: Changed) -> None:
        """Make a change in the only process there is."""
        try:
            match change:
                case LoadModel(name):
                    self._load(name)
                case UnloadModel(name):
                    self._store.model(name)
                    self._store.remove(name, "unloaded")
                case RegisterRegion(name, key, offset, byte_size):
                    self._regions.register(name, key, offset, byte_size)
                case UnregisterRegion(name):
                    self._regions.unregister(name)
        except RequestError as error:
            changed(error)
        else:
            changed(None)

    async def _serve(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        descriptor = create_shared_memory(block_sizes(1))
        self._metrics = metrics = RuntimeMetrics(descriptor, 1, 1)
        os.close(descriptor)
        metrics.claim("", (), 0)
        self._store = store = ModelStore()
        self._regions = regions = SharedMemoryRegions()
        self._service = service = InferenceService(1_024, 512 * 1024 * 1024, metrics, loop)
        administration = Administration(store, metrics, regions, self._change)
        limits = Limits(30 * 10**9, self._limits.max_body_bytes)
        parts = (self.health, metrics, service, store, regions, administration, limits)
        connections = Connections(loop, metrics.connections)
        factory = connection_factory(
            _Mount(*parts), self._limits, connections, loop, OpenInferenceService(*parts)
        )
        for name in self._names:
            self._load(name)
        server = await loop.create_server(factory, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.health.advance(Phase.SERVING)
        self._started.set()
        await self._stop.wait()
        server.close()
        connections.drain()
        with suppress(TimeoutError):
            await asyncio.wait_for(connections.empty.wait(), 5)
        service.close()
