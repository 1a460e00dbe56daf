"""Which fields of a model configuration are understood: those in the tables, so that none is passed over.

Every field that is set is looked up by its path. What is not in the tables is refused, also if a later
Triton adds it.
"""

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import Message

from mcp2026.runtime.model.triton.model_config_pb2 import (
    ModelConfig,
    ModelInput,
    ModelInstanceGroup,
    ModelOutput,
)
from mcp2026.runtime.model.triton.refusal import Refusal

MAX_ROWS = 4_096
MAX_INSTANCES = 64
MAX_LEVELS = 100
MAX_DELAY_US = 65_535_000
MAX_TIMEOUT_US = 3_600_000_000
MAX_QUEUE = 1_000_000
MAX_SAMPLES = 64
MAX_RUNS = 1_000

Check = Callable[[Any], tuple[str, str] | None]
"""Problem and what is supported, None if the value is accepted."""


def _any(_value: Any) -> tuple[str, str] | None:
    return None


def _between(low: int, high: int) -> Check:
    def check(value: Any) -> tuple[str, str] | None:
        return None if low <= value <= high else (f"is {value}", f"{low} to {high}")

    return check


def _one_of(*values: str) -> Check:
    def check(value: Any) -> tuple[str, str] | None:
        return None if value in values else (f"is {value!r}", ", ".join(values))

    return check


def _file_in(folder: str) -> Check:
    def check(value: Any) -> tuple[str, str] | None:
        plain = "/" not in value and "\0" not in value and value not in (".", "..")
        return None if plain else (f"is {value!r}", f"the name of a file in {folder}")

    return check


def _parameter(key: str, value: Any) -> tuple[str, str] | None:
    if key in _THREADS and value.string_value in ("", "0"):
        return None
    return f"is {value.string_value!r}", _PARAMETERS.get(key, "no parameters")


_THREADS = ("intra_op_thread_count", "inter_op_thread_count")
_PARAMETERS = {
    **dict.fromkeys(_THREADS, "0; the server's --threads sets the threads of each worker"),
    "execution_mode": "operators run one after another",
    "cudnn_conv_algo_search": "ONNX Runtime's default",
    "gpu_mem_limit": "ONNX Runtime's default",
    "arena_extend_strategy": "ONNX Runtime's default",
    "do_copy_in_default_stream": "ONNX Runtime's default",
    "enable_mem_arena": "ONNX Runtime's default",
    "enable_mem_pattern": "ONNX Runtime's default",
}

_CHECKS: dict[str, Check] = {
    "name": _any,  # compared with the folder's
    "platform": _one_of("onnxruntime_onnx"),
    "backend": _one_of("onnxruntime"),
    "default_model_filename": _file_in("the version's folder"),
    "max_batch_size": _between(0, MAX_ROWS),
    "version_policy.latest.num_versions": _any,
    "version_policy.specific.versions": _any,
    "input.name": _any,
    "input.data_type": _any,
    "input.dims": _any,
    "input.format": _any,  # a remark for readers: no server changes the layout of a tensor
    "input.reshape.shape": _any,  # compared with dims
    "output.name": _any,
    "output.data_type": _any,
    "output.dims": _any,
    "output.reshape.shape": _any,
    "instance_group.name": _any,
    "instance_group.count": _between(1, MAX_INSTANCES),
    "instance_group.kind": _any,  # depends on the machine
    "dynamic_batching.preferred_batch_size": _between(1, MAX_ROWS),
    "dynamic_batching.max_queue_delay_microseconds": _between(0, MAX_DELAY_US),
    "dynamic_batching.priority_levels": _between(0, MAX_LEVELS),
    "dynamic_batching.default_priority_level": _between(1, MAX_LEVELS),
    "model_warmup.name": _any,
    "model_warmup.batch_size": _any,  # compared with max_batch_size
    "model_warmup.count": _between(0, MAX_RUNS),
    "model_warmup.inputs.data_type": _any,  # compared with the model, as dims are
    "model_warmup.inputs.dims": _any,
    "model_warmup.inputs.zero_data": _any,
    "model_warmup.inputs.random_data": _any,
    "model_warmup.inputs.input_data_file": _file_in("the model's folder warmup"),
}
for _policy in ("dynamic_batching.default_queue_policy", "dynamic_batching.priority_queue_policy"):
    _CHECKS[f"{_policy}.timeout_action"] = _any
    _CHECKS[f"{_policy}.default_timeout_microseconds"] = _between(0, MAX_TIMEOUT_US)
    _CHECKS[f"{_policy}.allow_timeout_override"] = _any
    _CHECKS[f"{_policy}.max_queue_size"] = _between(0, MAX_QUEUE)

_GROUPS = {
    "version_policy",
    "version_policy.latest",
    "version_policy.all",
    "version_policy.specific",
    "input",
    "input.reshape",
    "output",
    "output.reshape",
    "instance_group",
    "model_warmup",
    "model_warmup.inputs",
    "dynamic_batching",
    "dynamic_batching.default_queue_policy",
    "dynamic_batching.priority_queue_policy",
    "model_transaction_policy",
    "response_cache",
    "optimization",
    "optimization.execution_accelerators",
}
"""Messages of which only what is set inside counts."""

_INSTEAD = {
    "sequence_batching": "models without state, with dynamic_batching",
    "ensemble_scheduling": "models of one step",
    "model_transaction_policy.decoupled": "one answer for each request",
    "response_cache.enable": "no cache of answers",
    "optimization.execution_accelerators.gpu_execution_accelerator": "the server's --provider",
    "optimization.execution_accelerators.cpu_execution_accelerator": "the server's --provider",
    "optimization.graph": "ONNX Runtime's default, or mcp2026 convert",
    "optimization.cuda": "ONNX Runtime's default",
    "input.allow_ragged_batch": "tensors of one shape in a batch",
    "input.optional": "inputs that every request has",
    "input.is_shape_tensor": "ONNX models",
    "input.is_non_linear_format_io": "ONNX models",
    "output.label_filename": "classification answers without labels",
    "instance_group.gpus": "all GPUs that the process sees",
    "instance_group.rate_limiter": "instances that run when they are free",
    "dynamic_batching.preserve_ordering": "answers in the order in which they are ready",
    "model_operations": "ONNX Runtime's own operators",
    "model_repository_agents": "files as they are",
    "batch_input": "inputs that requests have",
    "batch_output": "one row of each output for each row of the inputs",
    "runtime": "ONNX Runtime",
}


def refusals_of(config: ModelConfig, *, gpu: bool) -> list[Refusal]:
    """Return every field of `config` that cannot be honoured; `gpu`: ONNX Runtime offers a GPU here."""
    found = list(_refused(config, "", ""))
    for index, group in enumerate(config.instance_group):
        if group.kind == ModelInstanceGroup.KIND_GPU and not gpu:
            allowed = "KIND_CPU, KIND_AUTO, KIND_MODEL; the installed ONNX Runtime offers no GPU"
            found.append(Refusal(f"instance_group[{index}].kind", "is KIND_GPU", allowed))
    found += _refused_together(config)
    return found


def _refused(message: Message, path: str, shown: str) -> Iterator[Refusal]:
    for field, value in message.ListFields():
        name, at = f"{path}{field.name}", f"{shown}{field.name}"
        if name == "parameters":
            for key, parameter in sorted(value.items()):
                yield from _one(f'{at}["{key}"]', _parameter(key, parameter))
        elif name in _CHECKS:
            for place, item in _items(at, value):
                yield from _one(place, _CHECKS[name](item))
        elif name in _GROUPS:
            for place, item in _items(at, value):
                yield from _refused(item, f"{name}.", f"{place}.")
        else:
            yield Refusal(at, "is set", _INSTEAD.get(name, "a configuration without it"))


def _items(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a field's values, each with its place: one, those of a list, or those of a map."""
    if hasattr(value, "items"):
        yield from ((f"{place}[{key}]", value[key]) for key in value)
    elif hasattr(value, "append"):
        yield from ((f"{place}[{index}]", item) for index, item in enumerate(value))
    else:
        yield place, value


def _one(field: str, problem: tuple[str, str] | None) -> Iterator[Refusal]:
    if problem is not None:
        yield Refusal(field, *problem)


def _refused_together(config: ModelConfig) -> Iterator[Refusal]:
    """Check fields against each other."""
    batching = config.dynamic_batching
    for index, size in enumerate(batching.preferred_batch_size):
        if 1 <= size <= MAX_ROWS and size > config.max_batch_size:
            field = f"dynamic_batching.preferred_batch_size[{index}]"
            yield Refusal(field, f"is {size}", f"1 to max_batch_size, which is {config.max_batch_size}")
    levels = batching.priority_levels
    if levels and not 1 <= batching.default_priority_level <= levels:
        field = "dynamic_batching.default_priority_level"
        yield Refusal(field, f"is {batching.default_priority_level}", f"1 to {levels} (priority_levels)")
    for level in batching.priority_queue_policy:
        if not 1 <= level <= levels:
            field = f"dynamic_batching.priority_queue_policy[{level}]"
            yield Refusal(field, "is of no level", f"1 to {levels} (priority_levels)")
    instances = sum(max(1, group.count) for group in config.instance_group)
    if instances > MAX_INSTANCES:
        yield Refusal("instance_group", f"asks for {instances} instances", f"1 to {MAX_INSTANCES}")
    most = max(1, config.max_batch_size)
    for index, sample in enumerate(config.model_warmup):
        if sample.batch_size > most:
            field = f"model_warmup[{index}].batch_size"
            yield Refusal(field, f"is {sample.batch_size}", f"1 to {most} (max_batch_size)")
    if len(config.model_warmup) > MAX_SAMPLES:
        yield Refusal("model_warmup", f"has {len(config.model_warmup)} samples", f"up to {MAX_SAMPLES}")
    for index, taken in enumerate(config.input):
        yield from _reshaped(f"input[{index}]", taken)
    for index, given in enumerate(config.output):
        yield from _reshaped(f"output[{index}]", given)


def _reshaped(field: str, tensor: ModelInput | ModelOutput) -> Iterator[Refusal]:
    if tensor.HasField("reshape") and list(tensor.reshape.shape) != list(tensor.dims):
        allowed = f"the shape in dims, {list(tensor.dims)}"
        yield Refusal(f"{field}.reshape", f"is {list(tensor.reshape.shape)}", allowed)
