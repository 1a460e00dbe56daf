"""`mcp2026 convert`: ONNX models become files whose weights processes share."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import onnxruntime
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from mcp2026.cli.errors import CommandError
from mcp2026.runtime.errors import RequestError, StartupError
from mcp2026.runtime.model.ir.manifest import Manifest, Weights
from mcp2026.runtime.model.ir.optimizing import optimized
from mcp2026.runtime.model.ir.reading import check_weights, is_ir_file, read_manifest
from mcp2026.runtime.model.ir.writing import (
    Origin,
    WriteError,
    constant_bytes,
    describe_source,
    write_ir_file,
)
from mcp2026.runtime.model.probe import agree, run, samples
from mcp2026.runtime.model.sessions import open_model
from mcp2026.runtime.model.signature import spec_of
from mcp2026.runtime.model.triton.repository import scan_repository

SUFFIX = ".mcpir"
OPTIMIZED_BYTES = 1024**3
"""Weights up to which a graph is optimized unless it is said: ONNX Runtime holds them all in memory."""
MIB = 1024 * 1024
_ROWS = 2
_SEED = 2026


@dataclass(frozen=True, slots=True)
class Wishes:
    """How models are to be converted."""

    weights: Weights
    optimize: bool | None
    """None: if the weights are not too large."""
    verify: bool
    force: bool


def convert(models: list[Path], output: Path | None, wishes: Wishes) -> None:
    """Convert each of `models`: an ONNX file, a folder with one, or a repository of models.

    Raises:
        CommandError: one cannot be converted; those before it are.

    """
    jobs = [job for model in models for job in _jobs(model)]
    if output is not None and len(jobs) != 1:
        raise CommandError(f"--output names one file, but {len(jobs)} models would be written")
    for source, beside in jobs:
        _convert(source, output or beside, wishes)


def describe(path: Path, *, check: bool) -> str:
    """Return the manifest of a converted model as JSON; with `check` all of its weights are read before.

    Raises:
        CommandError: it is none, or was changed.

    """
    with _one_sentence():
        manifest = read_manifest(str(path))
        if check:
            with _bar(path.name, manifest.weight_bytes) as advance:
                check_weights(str(path), advance.by)
        return json.dumps(msgspec.to_builtins(manifest), indent=2)


def _jobs(model: Path) -> Iterator[tuple[Path, Path]]:
    """Yield what is to be converted, and the file that it becomes unless another is said."""
    if not model.is_dir():
        if is_ir_file(str(model)):
            raise CommandError(f"{model} is converted already; --describe shows it")
        yield model, model.with_suffix(SUFFIX)
        return
    if (model / "model.onnx").is_file():
        yield model / "model.onnx", model / f"model{SUFFIX}"
        return
    with _one_sentence():
        found = [(entry.name, str(version)) for entry in scan_repository(model) for version in entry.versions]
    if not found:
        raise CommandError(f"{model} holds neither model.onnx nor models as <name>/<version>/model.onnx")
    for name, version in found:
        folder = model / name / version
        source = folder / "model.onnx"
        if not source.exists():
            raise CommandError(f"{folder} holds no model.onnx")
        yield (source / "model.onnx" if source.is_dir() else source), folder / f"model{SUFFIX}"


def _convert(source: Path, output: Path, wishes: Wishes) -> None:
    if output.exists() and not wishes.force:
        raise CommandError(f"{output} is there already; --force replaces it")
    if not output.parent.is_dir():
        raise CommandError(f"{output.parent} is no folder")
    with _one_sentence():
        size = constant_bytes(source)
        optimize = size <= OPTIMIZED_BYTES if wishes.optimize is None else wishes.optimize
        if wishes.optimize is None and not optimize:
            _say(f"{source}: {size / MIB:,.0f} MiB of weights, so the graph stays as it is (see --optimize)")
        _require_space(output.parent, size * (2 if optimize else 1))
        step = optimized(source, output.parent) if optimize else nullcontext(source)
        with step as model, _bar(source.name, size) as advance:
            origin = Origin(
                model,
                describe_source(source),
                wishes.weights,
                "basic" if optimize else "none",
                onnxruntime.__version__ if optimize else None,
            )
            manifest = write_ir_file(
                origin,
                output,
                advance.to,
                replace=wishes.force,
                accept=lambda file: _verify(source, file) if wishes.verify else None,
            )
    _say(_summary(source, output, manifest, verified=wishes.verify))


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CommandError(f"{folder} has {free / MIB:,.0f} MiB free, {needed / MIB:,.0f} MiB are needed")


def _summary(source: Path, output: Path, manifest: Manifest, *, verified: bool) -> str:
    mapped = f"{manifest.weight_bytes / MIB:.1f} MiB of {manifest.weights} weights"
    graph = f"{manifest.graph.length / MIB:.1f} MiB of graph"
    compared = f"answers as {source} does" if verified else f"not compared with {source}"
    return f"{output}: {len(manifest.tensors)} tensors, {mapped}, {graph}; {compared}"


def _verify(original: Path, converted: Path) -> None:
    """Run both on the same random input.

    Raises:
        CommandError: their answers differ, or they cannot be run.

    """
    theirs, ours = (open_model(str(path), None, 1, "cpu").session for path in (original, converted))
    try:
        inputs, outputs = (
            tuple(spec_of(argument) for argument in arguments)
            for arguments in (theirs.get_inputs(), theirs.get_outputs())
        )
        arrays = samples(inputs, _ROWS, np.random.default_rng(_SEED))
        expected, found = (run(session, inputs, outputs, arrays) for session in (theirs, ours))
    except RequestError as error:
        raise CommandError(f"{original} cannot be compared: {error}; --no-verify leaves it out") from error
    except Exception as error:  # ONNX Runtime's exception classes share no base but this
        raise CommandError(
            f"{original} cannot be run on random input: {str(error)[:300]}; --no-verify leaves this out"
        ) from error
    for spec, left, right in zip(outputs, expected, found, strict=True):
        if not agree(spec, right, left):
            raise CommandError(
                f"output {spec.name!r} of the converted {original} differs; nothing was written"
            )


class _Advance:
    """Where a progress bar stands."""

    def __init__(self, progress: Progress, name: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=total)

    def to(self, done: int, total: int) -> None:
        """Show `done` of `total` bytes."""
        self._progress.update(self._task, completed=done, total=total)

    def by(self, more: int) -> None:
        """Show `more` bytes than before."""
        self._progress.advance(self._task, more)


@contextmanager
def _bar(name: str, total: int) -> Iterator[_Advance]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield _Advance(progress, name, total)


@contextmanager
def _one_sentence() -> Iterator[None]:
    try:
        yield
    except (StartupError, WriteError) as error:
        raise CommandError(str(error)) from error


def _say(line: str) -> None:
    typer.echo(f"==> {line}")
