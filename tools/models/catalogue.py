"""Which models there are, and how one becomes a file."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import onnx

from tools.models import small
from tools.models.resnet50 import resnet50

MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": resnet50,
    "mlp": small.mlp,
    "add": small.add,
    "add-hundred": small.add_hundred,
    "slow": small.slow,
    "integers": small.integers,
    "halves": small.halves,
    "booleans": small.booleans,
    "pair": small.pair,
    "fixed": small.fixed,
    "mixing": small.mixing,
    "lookup": small.lookup,
    "anysize": small.anysize,
    "reciprocal": small.reciprocal,
}


def generate(name: str, directory: Path) -> Path:
    """Return the file `<directory>/<name>.onnx`, making it first if it is not there.

    The file appears whole or not at all: it is written beside its place and renamed.
    """
    target = directory / f"{name}.onnx"
    if target.exists():
        return target
    directory.mkdir(parents=True, exist_ok=True)
    document = MODELS[name]().SerializeToString(deterministic=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{name}-", suffix=".partial", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(document)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target
