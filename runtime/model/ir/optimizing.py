"""What ONNX Runtime would compute from constants at every start, computed once, when a model is converted.

A constant that is folded at load is a new one, in memory of each process: of a ResNet whose batch
normalizations are folded at load nothing would stay mapped.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcp2026.runtime.errors import ModelLoadError
from mcp2026.runtime.model.ir.left_over import make_and_hold, remove_left_over
from mcp2026.runtime.model.ir.writing import SMALLEST_BYTES

_PREFIX = ".convert-"
_MODEL, _WEIGHTS = "optimized.onnx", "optimized.bin"


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    remove_left_over(folder, f"{_PREFIX}*")
    temporary, held = make_and_hold(lambda: Path(tempfile.mkdtemp(dir=folder, prefix=_PREFIX)))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(held)


@contextmanager
def optimized(model: Path, folder: Path) -> Iterator[Path]:
    """Give the model with its constants folded, in a folder below `folder` that goes when the block ends.

    Only rewrites that hold on every kind of device are made ("basic" in ONNX Runtime's terms).

    Raises:
        ModelLoadError: ONNX Runtime cannot load it.

    """
    import onnxruntime

    with _temporary(folder) as temporary:
        target = temporary / _MODEL
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(target)
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", _WEIGHTS)
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_min_size_in_bytes", str(SMALLEST_BYTES)
        )
        try:
            onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's exception classes share no base but this
            said = (str(error).strip().splitlines() or [type(error).__name__])[0][:500]
            raise ModelLoadError(
                str(model), f"it cannot be optimized: {said}", "Convert it as it is: --no-optimize"
            ) from error
        yield target
