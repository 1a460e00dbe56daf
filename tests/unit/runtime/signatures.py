"""Versions that have a signature and nothing to run: what codecs need."""

from typing import Any

from mcp2026.api.serving import Batching, ServingConfig, single_version
from mcp2026.runtime.model.loaded import LoadedVersion
from mcp2026.runtime.model.signature import Signature, TensorSpec
from mcp2026.runtime.protocol.inflating import Room
from mcp2026.runtime.protocol.open_inference.datatypes import DATATYPES
from mcp2026.runtime.protocol.open_inference.requests import Limits

LIMITS = Limits(max_timeout_ns=30 * 10**9, max_tensor_bytes=1_000_000, room=Room(1_000_000_000))
LEVELS = 10


def tensor(name: str, datatype: str, *dims: int | None) -> TensorSpec:
    return TensorSpec(name, DATATYPES[datatype].dtype, dims, datatype)


def version(
    inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], *, shared: bool = True
) -> LoadedVersion:
    """Return version 7 of model `m`, which takes up to 8 rows of a run."""
    config: ServingConfig = single_version("m.onnx", Batching(max_batch_size=8))
    served: Any = type(config.versions[0])(version_id="7", path="m.onnx")
    metrics: Any = None
    return LoadedVersion(config, served, None, Signature(inputs, outputs, shared, ahead=True), metrics)
