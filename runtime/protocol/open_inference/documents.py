"""What the server tells about itself and its models, as the JSON of the protocol.

The documents have the names and forms of the protobuf messages, so gRPC's answers are made of them too.
Numbers that clients index without looking are always there, as whole numbers from 0.
"""

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from mcp2026.api.serving import QueuePolicy, ServingConfig
from mcp2026.runtime.metrics.version_statistics import BatchStatistics, Duration, VersionStatistics
from mcp2026.runtime.model.loaded import LoadedVersion, ServedModel
from mcp2026.runtime.model.signature import TensorSpec
from mcp2026.runtime.protocol.open_inference.datatypes import DATATYPES

SERVER_NAME = "mcp2026"
PLATFORM = "onnxruntime_onnx"
BACKEND = "onnxruntime"

EXTENSIONS = (
    "classification",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
)
"""Nothing depends on another model here, so that an unload with its dependents is one like any other."""

_MICROSECONDS = 1_000
"""In a millisecond."""

Document = dict[str, Any]


@cache
def server_metadata(*, shared_memory: bool) -> Document:
    """Return what `GET /v2` answers, of a server that takes tensors in shared memory or not."""
    try:
        release = version("mcp2026")
    except PackageNotFoundError:  # run from a folder
        release = "0"
    return {
        "name": SERVER_NAME,
        "version": release,
        "extensions": [name for name in EXTENSIONS if shared_memory or name != "system_shared_memory"],
    }


def model_metadata(model: ServedModel, loaded: LoadedVersion) -> Document:
    """Return the tensors of one version, with a leading -1 where requests share runs, and all versions."""
    signature = loaded.signature
    return {
        "name": model.name,
        "versions": list(model.versions),
        "platform": PLATFORM,
        "inputs": [_tensor_metadata(spec) for spec in signature.inputs],
        "outputs": [_tensor_metadata(spec) for spec in signature.outputs],
    }


def model_config(model: ServedModel, loaded: LoadedVersion) -> Document:
    """Return the configuration in the form of Triton's ModelConfig; dims are without the rows."""
    config = model.config
    shared = loaded.max_rows is not None
    document: Document = {
        "name": model.name,
        "platform": PLATFORM,
        "backend": BACKEND,
        "version_policy": _version_policy(list(model.versions)),
        "max_batch_size": loaded.max_rows or 0,
        "input": [
            _tensor_config(spec, shared=shared) | {"format": "FORMAT_NONE", "optional": False}
            for spec in loaded.signature.inputs
        ],
        "output": [_tensor_config(spec, shared=shared) for spec in loaded.signature.outputs],
        "instance_group": [{"name": model.name, "kind": "KIND_AUTO", "count": config.execution.instances}],
        "default_model_filename": "model.onnx",
        "parameters": {},
        "model_transaction_policy": {"decoupled": False},
        "response_cache": {"enable": False},
    }
    if shared:
        document["dynamic_batching"] = _dynamic_batching(config)
    return document


def model_statistics(loaded: LoadedVersion, statistics: VersionStatistics) -> Document:
    """Return the counters of one version since it was first loaded. Times in ns, `last_inference` in ms."""
    nothing = Duration(0, 0)
    times = {
        "success": statistics.success,
        "fail": statistics.fail,
        "queue": statistics.queue,
        "compute_input": statistics.compute_input,
        "compute_infer": statistics.compute_infer,
        "compute_output": statistics.compute_output,
        "cache_hit": nothing,
        "cache_miss": nothing,
    }
    return {
        "name": loaded.model,
        "version": loaded.version_id,
        "last_inference": statistics.last_inference_ms,
        "inference_count": statistics.inference_count,
        "execution_count": statistics.execution_count,
        "inference_stats": {name: {"count": time.count, "ns": time.ns} for name, time in times.items()},
        "batch_stats": [_batch_statistics(batch) for batch in statistics.batches],
        "memory_usage": [],
        "response_stats": {},
    }


def _batch_statistics(batch: BatchStatistics) -> Document:
    times = {
        "compute_input": batch.input_ns,
        "compute_infer": batch.infer_ns,
        "compute_output": batch.output_ns,
    }
    return {"batch_size": batch.batch_size} | {
        name: {"count": batch.count, "ns": ns} for name, ns in times.items()
    }


def _tensor_metadata(spec: TensorSpec) -> Document:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.wire_shape}


def _tensor_config(spec: TensorSpec, *, shared: bool) -> Document:
    return {
        "name": spec.name,
        "data_type": DATATYPES[spec.datatype].config_name,
        "dims": spec.wire_shape[1:] if shared else spec.wire_shape,
        "is_shape_tensor": False,
    }


def _version_policy(version_ids: list[str]) -> Document:
    if all(version_id.isdecimal() for version_id in version_ids):
        return {"specific": {"versions": [int(version_id) for version_id in version_ids]}}
    return {"all": {}}  # Triton has numbers alone


def _dynamic_batching(config: ServingConfig) -> Document:
    least = config.batching.min_batch_size
    return {
        "preferred_batch_size": [least] if least > 1 else [],
        "max_queue_delay_microseconds": config.batching.max_delay_ms * _MICROSECONDS,
        "preserve_ordering": False,
        "priority_levels": config.priorities.levels,
        "default_priority_level": config.priorities.default,
        "default_queue_policy": _queue_policy(config.queue),
        "priority_queue_policy": {
            str(level): _queue_policy(policy) for level, policy in config.priorities.queues.items()
        },
    }


def _queue_policy(policy: QueuePolicy) -> Document:
    return {
        "timeout_action": policy.timeout_action.upper(),
        "default_timeout_microseconds": int(policy.default_timeout_ms * _MICROSECONDS),
        "allow_timeout_override": True,
        "max_queue_size": policy.max_rows,
    }
