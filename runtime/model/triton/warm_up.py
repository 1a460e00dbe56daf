"""`model_warmup` of a model configuration: requests that each version runs before it serves.

Contract: https://github.com/triton-inference-server/server/blob/main/docs/user_guide/model_configuration.md
Files lie in the folder `warmup` of the model. A sample whose batch_size is 0 is passed over, as in Triton.
"""

import logging
import math
from collections.abc import Iterator
from pathlib import Path

from mcp2026.api.serving import WarmUpSample, WarmUpTensor
from mcp2026.runtime.model.onnx_wire import ELEMENT_NAMES, Value, Values
from mcp2026.runtime.model.triton.model_config_pb2 import DataType, ModelConfig, ModelWarmup
from mcp2026.runtime.model.triton.refusal import Refusal
from mcp2026.runtime.model.triton.tensors import DATA_TYPES

log = logging.getLogger(__name__)

WARM_UP_FOLDER = "warmup"
_BYTES_OF = {
    **dict.fromkeys(("TYPE_BOOL", "TYPE_UINT8", "TYPE_INT8"), 1),
    **dict.fromkeys(("TYPE_FP16", "TYPE_BF16", "TYPE_UINT16", "TYPE_INT16"), 2),
    **dict.fromkeys(("TYPE_FP32", "TYPE_UINT32", "TYPE_INT32"), 4),
    **dict.fromkeys(("TYPE_FP64", "TYPE_UINT64", "TYPE_INT64"), 8),
}
"""Of one element; texts have no fixed size."""


def warm_up_samples(config: ModelConfig, folder: Path) -> tuple[WarmUpSample, ...]:
    """Return the samples of an accepted configuration, whose model lies in `folder`."""
    return tuple(
        WarmUpSample(
            name=sample.name or str(index),
            rows=sample.batch_size if config.max_batch_size > 0 else 0,
            runs=max(1, sample.count),
            inputs={name: _tensor(sample.inputs[name], folder) for name in sorted(sample.inputs)},
        )
        for index, sample in enumerate(config.model_warmup)
        if _counts(sample, config)
    )


def sample_misfits(config: ModelConfig, values: Values, folder: Path) -> list[Refusal]:
    """Return where the samples contradict the model, or need a file that is not as it has to be."""
    return [
        refusal
        for index, sample in enumerate(config.model_warmup)
        if sample.batch_size
        for refusal in _compared(f"model_warmup[{index}]", sample, config, values, folder)
    ]


def _counts(sample: ModelWarmup, config: ModelConfig) -> bool:
    if not sample.batch_size:
        log.warning(
            "model %s: the warm-up sample %r has batch_size 0 and is left out", config.name, sample.name
        )
    return bool(sample.batch_size)


def _tensor(tensor: ModelWarmup.Input, folder: Path) -> WarmUpTensor:
    kind = tensor.WhichOneof("input_data_type")
    return WarmUpTensor(
        shape=tuple(tensor.dims),
        random=kind == "random_data",
        file=str(folder / WARM_UP_FOLDER / tensor.input_data_file) if kind == "input_data_file" else None,
    )


def _compared(
    field: str, sample: ModelWarmup, config: ModelConfig, values: Values, folder: Path
) -> Iterator[Refusal]:
    inputs = {value.name: value for value in values.inputs}
    if missing := sorted(inputs.keys() - set(sample.inputs)):
        yield Refusal(f"{field}.inputs", f"lacks {', '.join(missing)}", "every input of the model")
    for name in sorted(sample.inputs):
        at, tensor = f"{field}.inputs[{name}]", sample.inputs[name]
        value = inputs.get(name)
        if value is None:
            yield Refusal(at, "is none of the model's inputs", ", ".join(inputs))
            continue
        yield from _compared_tensor(at, tensor, value, rows=config.max_batch_size > 0)
        if tensor.WhichOneof("input_data_type") is None:
            yield Refusal(at, "says nothing of its data", "zero_data, random_data or input_data_file")
        elif tensor.input_data_file:
            yield from _compared_file(at, tensor, folder / WARM_UP_FOLDER / tensor.input_data_file)


def _compared_tensor(at: str, tensor: ModelWarmup.Input, value: Value, *, rows: bool) -> Iterator[Refusal]:
    wanted = DATA_TYPES.get(value.element_type, ELEMENT_NAMES.get(value.element_type, "another type"))
    if DataType.Name(tensor.data_type) != wanted:
        yield Refusal(f"{at}.data_type", f"is {DataType.Name(tensor.data_type)}", wanted)
    said = list(tensor.dims)
    if value.shape is None:
        fits, shown = True, said
    else:
        dims = value.shape[1:] if rows else value.shape
        shown = [dim if isinstance(dim, int) else -1 for dim in dims]
        fits = len(said) == len(shown) and all(
            dim in (-1, asked) for dim, asked in zip(shown, said, strict=True)
        )
    if not fits or any(asked < 1 for asked in said):
        suffix = ", without the rows" if rows else ""
        yield Refusal(f"{at}.dims", f"is {said}", f"{shown}{suffix}, with a number from 1 for each -1")


def _compared_file(at: str, tensor: ModelWarmup.Input, file: Path) -> Iterator[Refusal]:
    try:
        size = file.stat().st_size if file.is_file() else None
    except OSError:
        size = None
    if size is None:
        yield Refusal(
            f"{at}.input_data_file", f"is {tensor.input_data_file!r}, which is not there", str(file)
        )
        return
    element = _BYTES_OF.get(DataType.Name(tensor.data_type))
    expected = math.prod(tensor.dims) * (element or 0)
    if element is not None and size != expected:
        problem = f"is {tensor.input_data_file!r}, which has {size} bytes"
        yield Refusal(f"{at}.input_data_file", problem, f"{expected} bytes for {list(tensor.dims)}")
