"""A file in our format, opened: checked from header, manifest and graph, without touching the weights."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from mcp2026.runtime.errors import ModelLoadError
from mcp2026.runtime.model.ir.header import HEADER_BYTES, MAGIC, IrError, decode_header
from mcp2026.runtime.model.ir.manifest import Manifest, Tensor, decode_manifest
from mcp2026.runtime.model.onnx_wire import Tensor as GraphTensor
from mcp2026.runtime.model.onnx_wire import WireError, exchange_tensors, external_data

CHUNK_BYTES = 4 * 1024 * 1024
_CONVERT_AGAIN = "Copy the file again, or convert the model again: mcp2026 convert"


@dataclass(frozen=True, slots=True)
class IrFile:
    """One file as it was when it was opened."""

    path: Path
    """Without symbolic links: what is mapped is the file that was checked."""
    manifest: Manifest
    graph: bytes
    """A `ModelProto` that refers to the weights by this file's name."""
    identity: tuple[int, ...]

    def check_unchanged(self) -> None:
        """Raise if another file has taken the place of this one.

        Raises:
            ModelLoadError: it has.

        """
        try:
            unchanged = _identity(self.path.stat()) == self.identity
        except OSError:
            unchanged = False
        if not unchanged:
            raise ModelLoadError(str(self.path), "the file was replaced while it was loaded", "Load it again")


def is_ir_file(path: str) -> bool:
    """Return whether the file begins as one in our format; False if it cannot be read or is too short."""
    try:
        with _opened(path) as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def open_ir_file(path: str) -> IrFile:
    """Open a model in our format; header, manifest and graph are checked against their digests.

    Raises:
        ModelLoadError: it cannot be read, or is not whole.

    """
    with _errors_of(path), _opened(path) as file:
        status = os.fstat(file.fileno())
        manifest = _read_manifest(file, status)
        graph = _read_graph(file, manifest)
        resolved = Path(path).resolve()
        return IrFile(resolved, manifest, _attached(graph, resolved.name, manifest), _identity(status))


def read_manifest(path: str) -> Manifest:
    """Return the manifest alone.

    Raises:
        ModelLoadError: it cannot be read, or cannot be true.

    """
    with _errors_of(path), _opened(path) as file:
        return _read_manifest(file, os.fstat(file.fileno()))


def check_weights(path: str, progress: Callable[[int], None] = lambda _: None) -> None:
    """Read the graph and all weights, and compare them with their digests; `progress` is told bytes read.

    Raises:
        ModelLoadError: names the first tensor that was changed.

    """
    with _errors_of(path), _opened(path) as file:
        manifest = _read_manifest(file, os.fstat(file.fileno()))
        _read_graph(file, manifest)
        for tensor in manifest.tensors:
            digest = hashlib.sha256()
            file.seek(tensor.offset)
            left = tensor.length
            while left:
                chunk = file.read(min(left, CHUNK_BYTES))
                if not chunk:
                    raise IrError(f"it ends inside tensor {tensor.name[:64]!r}")
                digest.update(chunk)
                left -= len(chunk)
                progress(len(chunk))
            if digest.hexdigest() != tensor.sha256:
                raise IrError(
                    f"tensor {tensor.name[:64]!r} was changed: the digest in the manifest is another"
                )


def _read_manifest(file: BinaryIO, status: os.stat_result) -> Manifest:
    if not stat.S_ISREG(status.st_mode):
        raise IrError("it is no regular file")
    header = decode_header(file.read(HEADER_BYTES), status.st_size)
    file.seek(header.manifest_offset)
    document = file.read(header.manifest_length)
    header.check_manifest(document)
    return decode_manifest(document, status.st_size)


def _read_graph(file: BinaryIO, manifest: Manifest) -> bytes:
    file.seek(manifest.graph.offset)
    graph = file.read(manifest.graph.length)
    if hashlib.sha256(graph).hexdigest() != manifest.graph.sha256:
        raise IrError("its graph was changed: the digest in the manifest is another")
    return graph


def _attached(graph: bytes, location: str, manifest: Manifest) -> bytes:
    """Return the graph with every constant outside of it at its place in the file `location`."""
    left: Iterator[Tensor] = iter(manifest.tensors)

    def place(constant: GraphTensor) -> bytes | None:
        if constant.external is None:
            return None
        tensor = next(left, None)
        if tensor is None or constant.in_attribute:
            raise IrError(f"its graph has a constant {constant.name[:64]!r} that its manifest does not know")
        found = (constant.name, constant.element_type, constant.dims)
        if found != (tensor.name, tensor.element_type, tensor.shape):
            raise IrError(f"constant {constant.name[:64]!r} of its graph is not tensor {tensor.name[:64]!r}")
        return external_data(location, tensor.offset, tensor.length)

    try:
        attached = exchange_tensors(memoryview(graph), place)
    except WireError as error:
        raise IrError(f"its graph cannot be read: {error}") from error
    if (unused := next(left, None)) is not None:
        raise IrError(f"its graph has no constant for tensor {unused.name[:64]!r}")
    return attached


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _opened(path: str) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")  # a pipe would wait for its other end


@contextmanager
def _errors_of(path: str) -> Iterator[None]:
    try:
        yield
    except IrError as error:
        raise ModelLoadError(
            path, f"it is no model in MCP 2026's format, or not a whole one: {error}", _CONVERT_AGAIN
        ) from error
    except OSError as error:
        raise ModelLoadError(path, str(error.strerror), "Make the file readable for this user") from error
    except ValueError as error:
        raise ModelLoadError(path, "no file can have this name", "Check the path") from error
