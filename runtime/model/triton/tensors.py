"""Do the inputs and outputs of a configuration fit the model? And what Triton would fill in, filled in."""

import logging
from collections.abc import Iterator, Mapping

from mcp2026.runtime.model.onnx_wire import ELEMENT_NAMES, Value, Values
from mcp2026.runtime.model.triton.model_config_pb2 import DataType, ModelConfig, ModelInput, ModelOutput
from mcp2026.runtime.model.triton.refusal import Refusal

log = logging.getLogger(__name__)

DEFAULT_MAX_BATCH_SIZE = 4
"""What Triton gives a model that can be batched and does not say how far (default-max-batch-size)."""

DATA_TYPES = {
    1: "TYPE_FP32",
    2: "TYPE_UINT8",
    3: "TYPE_INT8",
    4: "TYPE_UINT16",
    5: "TYPE_INT16",
    6: "TYPE_INT32",
    7: "TYPE_INT64",
    8: "TYPE_STRING",
    9: "TYPE_BOOL",
    10: "TYPE_FP16",
    11: "TYPE_FP64",
    12: "TYPE_UINT32",
    13: "TYPE_UINT64",
    16: "TYPE_BF16",
}
"""`TensorProto.DataType` of ONNX to the name in a model configuration."""


def completed(config: ModelConfig, values: Values) -> ModelConfig:
    """Return `config` with max_batch_size and dynamic batching as Triton fills them in.

    As Triton does, only where inputs or outputs are not declared, and every first dimension is dynamic.
    """
    complete = ModelConfig()
    complete.CopyFrom(config)
    if (config.input and config.output) or config.max_batch_size:
        return complete
    everything = (*values.inputs, *values.outputs)
    if values.inputs and all(value.shape and not isinstance(value.shape[0], int) for value in everything):
        complete.max_batch_size = DEFAULT_MAX_BATCH_SIZE
        if not complete.HasField("dynamic_batching"):
            complete.dynamic_batching.SetInParent()
    return complete


def misfits(config: ModelConfig, values: Values) -> list[Refusal]:
    """Return where a configuration and its model contradict each other."""
    found = list(_without_rows(config, values)) if config.max_batch_size > 0 else []
    if found:
        return found
    inputs, outputs = ({value.name: value for value in side} for side in (values.inputs, values.outputs))
    for index, taken in enumerate(config.input):
        found += _compared(config, f"input[{index}]", taken, inputs)
    for index, given in enumerate(config.output):
        found += _compared(config, f"output[{index}]", given, outputs)
    declared_inputs = {tensor.name for tensor in config.input}
    missing = [value.name for value in values.inputs if value.name not in declared_inputs]
    if config.input and missing:
        found.append(Refusal("input", f"lacks {', '.join(missing)}", "every input of the model, or none"))
    return found


def _without_rows(config: ModelConfig, values: Values) -> Iterator[Refusal]:
    for value in (*values.inputs, *values.outputs):
        if value.shape is not None and (not value.shape or isinstance(value.shape[0], int)):
            shape = [-1 if not isinstance(dim, int) else dim for dim in value.shape]
            problem = f"is {config.max_batch_size}, but {value.name!r} of the model has shape {shape}"
            yield Refusal("max_batch_size", problem, "0, or a model whose first dimensions are all dynamic")
            return


def _compared(
    config: ModelConfig, field: str, tensor: ModelInput | ModelOutput, actual: Mapping[str, Value]
) -> Iterator[Refusal]:
    value = actual.get(tensor.name)
    if value is None:
        yield Refusal(f"{field}.name", f"is {tensor.name!r}, which the model has not", ", ".join(actual))
        return
    wanted = DATA_TYPES.get(value.element_type)
    if wanted is None:
        kind = ELEMENT_NAMES.get(value.element_type, "no tensor")
        yield Refusal(f"{field}.data_type", f"the model has {kind} here", ", ".join(DATA_TYPES.values()))
    elif DataType.Name(tensor.data_type) != wanted:
        yield Refusal(f"{field}.data_type", f"is {DataType.Name(tensor.data_type)}", wanted)
    if value.shape is None:
        return
    batched = config.max_batch_size > 0
    dims = value.shape[1:] if batched else value.shape
    shown = [dim if isinstance(dim, int) else -1 for dim in dims]
    said = list(tensor.dims)
    if len(shown) != len(said) or any(dim not in (-1, asked) for dim, asked in zip(shown, said, strict=True)):
        yield Refusal(f"{field}.dims", f"is {said}", f"{shown}{', without the rows' if batched else ''}")
    elif shown != said:
        log.warning("model %s: %s.dims %s is narrower than the model's %s", config.name, field, said, shown)
