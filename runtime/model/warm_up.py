"""Run a version as requests will, before it serves: the sizes that batches will have, then the samples given.

The probe before has run one and two rows of a guess. What runs here goes through the same buffers and
bindings as requests, which are kept: the first request finds them used. See docs/decisions/0097.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mcp2026.api.serving import ServingConfig, WarmUpSample, WarmUpTensor
from mcp2026.runtime.batching.policy import next_padded_size
from mcp2026.runtime.errors import ModelLoadError, RequestError
from mcp2026.runtime.execution.job import Job
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.loaded import LoadedVersion, rows_of_a_run
from mcp2026.runtime.model.probe import samples
from mcp2026.runtime.model.sessions import first_line
from mcp2026.runtime.model.signature import STRING, TensorSpec, check_shape
from mcp2026.runtime.protocol.open_inference.datatypes import DATATYPES, from_wire

log = logging.getLogger(__name__)


class Run(NamedTuple):
    """One run of a version."""

    name: str
    """For messages."""
    rows: int
    """Of the run, padding included."""
    inputs: tuple[Array, ...]
    certain: bool
    """What fails here would fail for callers too; else its inputs are only a guess."""


def sizes_of_runs(config: ServingConfig) -> tuple[int, ...]:
    """Return the rows of the smallest run, of each padded one, and of the largest; growing."""
    most, padded = rows_of_a_run(config), config.execution.padded_batch_sizes
    within = next_padded_size(padded, most)
    ends = {next_padded_size(padded, 1), within}
    return tuple(sorted(ends | {size for size in padded if size < within}))


def needs_warm_up(before: ServingConfig, config: ServingConfig) -> bool:
    """Return whether a session that was warmed for `before` will meet anything new by `config`."""
    return (
        sizes_of_runs(before) != sizes_of_runs(config) or before.execution.warm_up != config.execution.warm_up
    )


def warm_up(
    version: LoadedVersion,
    path: str,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[str, ...]:
    """Run `version`, whose file is at `path`, and return the names of the runs that were made.

    A run that by the last one's time would not end within `seconds` of the beginning is left out, and named
    in the log. Blocks.

    Raises:
        ModelLoadError: it cannot run as requests would have it run.

    """
    began = now = clock()
    made: list[str] = []
    left_out: list[str] = []
    seconds_a_row = 0.0
    for one in _runs(version, path):
        if now - began + seconds_a_row * one.rows >= seconds:
            left_out.append(one.name)
            continue
        if _made(version, path, one):
            made.append(one.name)
        before, now = now, clock()
        seconds_a_row = (now - before) / one.rows
    if left_out:
        log.warning(
            "version %s: %s left out of the warm-up, which may take %g s: the first such batch may be slower",
            version.version_id,
            ", ".join(left_out),
            seconds,
        )
    log.debug("version %s: warmed by %s in %.3f s", version.version_id, ", ".join(made), now - began)
    return tuple(made)


def _made(version: LoadedVersion, path: str, one: Run) -> bool:
    shared = version.signature.shared
    shapes = tuple(array.shape[1:] if shared else array.shape for array in one.inputs)
    job = Job(version, shapes, [one.inputs], one.rows if shared else 1)
    try:
        job.run()
        if job.error is None:
            return True
        if one.certain:
            raise ModelLoadError(
                path,
                f"its warm-up with {one.name} failed: {first_line(job.error)}",
                "Correct the model, or lower the size of its batches",
            ) from job.error
        log.debug("version %s: %s: %s", version.version_id, one.name, first_line(job.error))
        return False
    finally:
        job.release()


def _runs(version: LoadedVersion, path: str) -> Iterator[Run]:
    signature, random = version.signature, np.random.default_rng(0)
    for rows in sizes_of_runs(version.config) if signature.shared else (1,):
        arrays = samples(signature.inputs, rows, random)
        inputs = tuple(arrays[spec.name] for spec in signature.inputs)
        yield Run(f"{rows} row{'s' if rows > 1 else ''}", rows, inputs, signature.shared)
    for sample in version.config.execution.warm_up or ():
        try:
            inputs = _inputs(sample, signature.inputs, random)
        except (OSError, ValueError, RequestError) as error:
            problem = f"the warm-up sample {sample.name!r}: {error}"
            raise ModelLoadError(path, problem, "Correct the sample, or remove it") from error
        run = Run(f"the sample {sample.name!r}", max(1, sample.rows), inputs, certain=True)
        yield from [run] * sample.runs


def _inputs(
    sample: WarmUpSample, specs: tuple[TensorSpec, ...], random: np.random.Generator
) -> tuple[Array, ...]:
    names = {spec.name for spec in specs}
    if sample.inputs.keys() != names:
        listed = ", ".join(sorted(names))
        raise ValueError(f"it has the inputs {', '.join(sorted(sample.inputs))}, and the model {listed}")
    return tuple(_input(sample, sample.inputs[spec.name], spec, random) for spec in specs)


def _input(
    sample: WarmUpSample, tensor: WarmUpTensor, spec: TensorSpec, random: np.random.Generator
) -> Array:
    shape = tuple(tensor.shape)
    whole = (sample.rows, *shape) if sample.rows else shape
    check_shape(spec, list(whole), math.prod(whole), f"inputs.{spec.name}.shape")
    if tensor.file is not None:
        content = Path(tensor.file).read_bytes()
        one = from_wire(DATATYPES[spec.datatype], content, math.prod(shape), spec.name).reshape(shape)
    elif spec.dtype == STRING:
        one = np.full(shape, b"", STRING)
    elif tensor.random:
        fixed = TensorSpec(spec.name, spec.dtype, shape, spec.datatype)
        one = samples((fixed,), 1, random)[spec.name]
    else:
        one = np.zeros(shape, spec.dtype)
    return np.ascontiguousarray(np.broadcast_to(one, whole))
