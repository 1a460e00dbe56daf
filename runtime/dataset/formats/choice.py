"""Which module reads or writes a file: its suffix says."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

from mcp2026.api.errors import SettingsError
from mcp2026.runtime.dataset.formats.interface import Sink, Source
from mcp2026.runtime.dataset.formats.jsonl import JsonlSink, JsonlSource
from mcp2026.runtime.dataset.formats.npy import NpySink, NpySource
from mcp2026.runtime.dataset.formats.npz import NpzSink, NpzSource
from mcp2026.runtime.model.signature import TensorSpec

Format = Literal["npy", "npz", "jsonl", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)


def format_of(setting: str, path: str) -> Format:
    """Return the format that the suffix of `path` names.

    Raises:
        SettingsError: there is none of that name, or pyarrow is missing.

    """
    suffix = PurePosixPath(path).suffix.removeprefix(".").lower()
    for name in FORMATS:
        if suffix == name:
            if name == "parquet" and find_spec("pyarrow") is None:
                raise SettingsError(
                    setting, "parquet needs pyarrow", "npy, npz, jsonl; or pip install 'mcp2026[parquet]'"
                )
            return name
    raise SettingsError(setting, f"{path!r} has the suffix {suffix!r}", ", ".join(f".{n}" for n in FORMATS))


def open_source(name: Format, path: Path, inputs: Sequence[TensorSpec], shown: str) -> Source:
    """Open a data set for a model with these inputs; `shown` is what messages call it.

    Raises:
        InputRefusedError: it is not what its suffix says, or lacks an input.
        StorageFailedError: it cannot be read.

    """
    if name == "npy":
        return NpySource(path, inputs, shown)
    if name == "npz":
        return NpzSource(path, inputs, shown)
    if name == "jsonl":
        return JsonlSource(path, inputs, shown)
    from mcp2026.runtime.dataset.formats.parquet import ParquetSource  # pyarrow is an extra

    return ParquetSource(path, inputs, shown)


def make_sink(name: Format, outputs: Sequence[str]) -> Sink:
    """Return what writes results in this format.

    Raises:
        SettingsError: it holds one output, and there are several.

    """
    if name == "npy":
        if len(outputs) != 1:
            raise SettingsError(
                "--output",
                f"npy holds one output, the model has {', '.join(outputs)}",
                ".npz, .jsonl, .parquet",
            )
        return NpySink(outputs)
    if name == "npz":
        return NpzSink(outputs)
    if name == "jsonl":
        return JsonlSink(outputs)
    from mcp2026.runtime.dataset.formats.parquet import ParquetSink  # pyarrow is an extra

    return ParquetSink(outputs)
