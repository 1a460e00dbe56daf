"""An ONNX model becomes a file in our format: planned from its graph, then copied tensor by tensor."""

import glob
import hashlib
import importlib.metadata
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from mcp2026.runtime.errors import ModelLoadError
from mcp2026.runtime.model.ir.header import HEADER_BYTES, Header
from mcp2026.runtime.model.ir.left_over import make_and_hold, remove_left_over
from mcp2026.runtime.model.ir.manifest import (
    ALIGNMENT,
    MAX_GRAPH_BYTES,
    Block,
    Manifest,
    Optimization,
    Producer,
    Source,
    Tensor,
    Value,
    Weights,
    encode_manifest,
)
from mcp2026.runtime.model.ir.reading import CHUNK_BYTES
from mcp2026.runtime.model.onnx_file import check_onnx_file
from mcp2026.runtime.model.onnx_wire import Tensor as Constant
from mcp2026.runtime.model.onnx_wire import WireError, exchange_tensors, mapped, no_data, read_values

SMALLEST_BYTES = ALIGNMENT
"""Smaller constants stay in the graph: a page of their own would cost more than it shares."""

Progress = Callable[[int, int], None]
"""Told the bytes of weights that are written, and of all."""


class WriteError(Exception):
    """The file cannot be written; the text says why."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What the file is made from, and how it is to be used."""

    model: Path
    """The ONNX file that is written."""
    source: Source
    """The one that the user gave; another if the graph was optimized."""
    weights: Weights
    optimization: Optimization
    onnxruntime: str | None


def describe_source(model: Path) -> Source:
    """Return name, size and digest of an ONNX file, without its external data.

    Raises:
        ModelLoadError: it cannot be read.

    """
    try:
        with model.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return Source(model.name, file.tell(), digest)
    except OSError as error:
        raise ModelLoadError(
            str(model), str(error.strerror), "Make the file readable for this user"
        ) from error


def constant_bytes(model: Path) -> int:
    """Return the bytes of all constants of an ONNX file, those in other files included.

    Raises:
        ModelLoadError: it is none.

    """
    total = 0

    def count(constant: Constant) -> None:
        nonlocal total
        total += constant.byte_size or 0

    with _onnx_errors(model):
        exchange_tensors(mapped(str(model)), count)
    return total


def write_ir_file(
    origin: Origin,
    output: Path,
    progress: Progress,
    *,
    replace: bool,
    accept: Callable[[Path], None] = lambda _: None,
) -> Manifest:
    """Write `output`, whole or not at all. Weights are copied in pieces, they are never in memory together.

    `accept` is given the complete file before it gets its name, and raises if it must not.

    Raises:
        ModelLoadError: the model cannot be read, or has what the format cannot hold.
        WriteError: the file is there and `replace` does not hold, or the disk refuses.

    """
    if not replace and output.exists():
        raise WriteError(f"{output} is there already")
    with _onnx_errors(origin.model):
        plan = _plan(origin, mapped(str(origin.model)))
    with _whole_or_nothing(output, accept, replace=replace) as target:
        return _write(origin, plan, target, progress)


@contextmanager
def _onnx_errors(model: Path) -> Iterator[None]:
    check_onnx_file(str(model))
    try:
        yield
    except WireError as error:
        raise ModelLoadError(str(model), f"it is not an ONNX model ({error})", "Export it again") from error
    except OSError as error:
        raise ModelLoadError(str(model), str(error.strerror), "Make it readable for this user") from error


@dataclass(frozen=True, slots=True)
class _Piece:
    """One tensor, and where its bytes come from."""

    tensor: Tensor
    file: Path
    begin: int


@dataclass(frozen=True, slots=True)
class _Plan:
    graph: bytes
    pieces: tuple[_Piece, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    opsets: dict[str, int]
    end: int
    """Where the manifest begins."""


def _plan(origin: Origin, model: memoryview) -> _Plan:
    """Decide which constants become tensors, and where each goes."""
    found: list[tuple[Constant, Path, int]] = []

    def take(constant: Constant) -> bytes | None:
        size = constant.byte_size
        if constant.external is not None:
            found.append((constant, *_outside(origin.model, constant)))
            return no_data()
        if constant.in_attribute or constant.raw is None or size is None or size < SMALLEST_BYTES:
            return None
        if constant.raw[1] - constant.raw[0] != size:
            raise WireError(f"constant {constant.name[:64]!r} has not as many bytes as its shape asks for")
        found.append((constant, origin.model, constant.raw[0]))
        return no_data()

    graph = exchange_tensors(model, take)
    if len(graph) > MAX_GRAPH_BYTES:
        raise WireError(f"its graph has {len(graph)} bytes; at most {MAX_GRAPH_BYTES} are possible")
    position = HEADER_BYTES + len(graph)
    pieces = []
    for constant, file, begin in found:
        position = -(-position // ALIGNMENT) * ALIGNMENT
        size = constant.byte_size or 0
        tensor = Tensor(constant.name, constant.element_type, constant.dims, position, size, "")
        pieces.append(_Piece(tensor, file, begin))
        position += size
    values = read_values(model)
    inputs, outputs = (
        tuple(Value(value.name, value.element_type, value.shape) for value in side)
        for side in (values.inputs, values.outputs)
    )
    return _Plan(graph, tuple(pieces), inputs, outputs, values.opsets, position)


def _outside(model: Path, constant: Constant) -> tuple[Path, int]:
    """Return file and offset of a constant's external data, which lies in or below the model's folder."""
    assert constant.external is not None
    what = f"constant {constant.name[:64]!r}"
    remedy = "Give the model together with the files that it refers to"
    location = constant.external.get("location", "")
    folder = model.resolve().parent
    file = (folder / location).resolve()
    if constant.in_attribute:
        raise ModelLoadError(
            str(model), f"{what} in an attribute has its values in a file", "Export it again"
        )
    if not location or not (file.is_relative_to(folder) or file.is_relative_to(model.parent.resolve())):
        raise ModelLoadError(str(model), f"{what} refers to {location[:200]!r}, outside its folder", remedy)
    size = constant.byte_size
    try:
        begin = int(constant.external.get("offset") or 0)
        length = int(constant.external.get("length") or size or 0)
        available = file.stat().st_size
    except ValueError as error:
        raise ModelLoadError(
            str(model), f"{what} has an offset that is no number", "Export it again"
        ) from error
    except OSError as error:
        raise ModelLoadError(
            str(model), f"{what} is in {location[:200]!r}: {error.strerror}", remedy
        ) from error
    if size is None or length != size or begin < 0 or begin + size > available:
        raise ModelLoadError(
            str(model), f"{what} has not its {size} bytes at {begin} in {location[:200]!r}", remedy
        )
    return file, begin


def _write(origin: Origin, plan: _Plan, target: BinaryIO, progress: Progress) -> Manifest:
    total = sum(piece.tensor.length for piece in plan.pieces)
    written = 0
    target.seek(HEADER_BYTES)
    target.write(plan.graph)
    tensors = []
    for piece in plan.pieces:
        target.seek(piece.tensor.offset)
        digest = hashlib.sha256()
        for chunk in _chunks(piece):
            digest.update(chunk)
            target.write(chunk)
            written += len(chunk)
            progress(written, total)
        tensors.append(msgspec.structs.replace(piece.tensor, sha256=digest.hexdigest()))
    target.seek(plan.end)
    manifest = Manifest(
        producer=Producer("mcp2026", importlib.metadata.version("mcp2026"), origin.onnxruntime),
        source=origin.source,
        size=0,
        alignment=ALIGNMENT,
        weights=origin.weights,
        optimization=origin.optimization,
        opsets=plan.opsets,
        inputs=plan.inputs,
        outputs=plan.outputs,
        graph=Block(HEADER_BYTES, len(plan.graph), hashlib.sha256(plan.graph).hexdigest()),
        tensors=tuple(tensors),
    )
    manifest, document = _with_its_size(manifest, plan.end)
    target.write(document)
    target.seek(0)
    target.write(Header(plan.end, len(document), hashlib.sha256(document).digest()).encode())
    return manifest


def _with_its_size(manifest: Manifest, begin: int) -> tuple[Manifest, bytes]:
    """Return the manifest that knows the file's size, which includes its own."""
    while True:
        document = encode_manifest(manifest)
        size = begin + len(document)
        if size == manifest.size:
            return manifest, document
        manifest = msgspec.structs.replace(manifest, size=size)


def _chunks(piece: _Piece) -> Iterator[bytes]:
    try:
        with piece.file.open("rb") as file:
            file.seek(piece.begin)
            left = piece.tensor.length
            while left:
                chunk = file.read(min(left, CHUNK_BYTES))
                if not chunk:
                    raise WriteError(f"{piece.file} became shorter while it was read")
                left -= len(chunk)
                yield chunk
    except OSError as error:
        raise WriteError(f"{piece.file} cannot be read: {error.strerror}") from error


@contextmanager
def _whole_or_nothing(output: Path, accept: Callable[[Path], None], *, replace: bool) -> Iterator[BinaryIO]:
    """Give a file that becomes `output` when the block ends well, and vanishes when it does not."""

    def make() -> Path:
        partial = output.with_name(f".{output.name}.{secrets.token_hex(4)}.part")
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        return partial

    try:
        remove_left_over(output.parent, f".{glob.escape(output.name)}.*.part")
        partial, held = make_and_hold(make)
        try:
            with partial.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            accept(partial)
            _publish(partial, output, replace=replace)
        finally:
            with suppress(FileNotFoundError):
                partial.unlink()
            os.close(held)
    except OSError as error:
        raise WriteError(f"{output} cannot be written: {error.strerror}") from error


def _publish(partial: Path, output: Path, *, replace: bool) -> None:
    if replace:
        partial.replace(output)
    else:
        try:
            os.link(partial, output)  # unlike a rename, it takes nobody's place
        except FileExistsError as error:
            raise WriteError(f"{output} is there already") from error
        except PermissionError:  # a file system without links
            partial.replace(output)
    folder = os.open(output.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
