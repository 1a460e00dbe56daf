"""What a file in our format says of itself, and whether that can be true."""

from typing import Literal

import msgspec

from mcp2026.runtime.model.ir.header import HEADER_BYTES, IrError
from mcp2026.runtime.model.onnx_wire import ELEMENT_BITS, size_of

ALIGNMENT = 4096
"""Of each tensor, in bytes: one page of the machines that run this, so that no two tensors share a page."""
MAX_ALIGNMENT = 2 * 1024 * 1024
MAX_GRAPH_BYTES = 2**31 - 1
"""What one protobuf message may have."""

Weights = Literal["shared", "private"]
Optimization = Literal["none", "basic"]


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    """A later minor version may add fields: unknown ones are passed over."""


class Producer(_Struct, frozen=True):
    """What wrote the file."""

    name: str
    version: str
    onnxruntime: str | None = None
    """Version that optimized the graph."""


class Source(_Struct, frozen=True):
    """The ONNX file that was converted."""

    file: str
    size: int
    sha256: str


class Value(_Struct, frozen=True):
    """One input or output."""

    name: str
    element_type: int
    """`TensorProto.DataType` of ONNX."""
    shape: tuple[int | str | None, ...] | None
    """A number, the name of a dynamic dimension, null for one without; null as a whole: unknown rank."""


class Block(_Struct, frozen=True):
    """Bytes of the file."""

    offset: int
    length: int
    sha256: str


class Tensor(_Struct, frozen=True):
    """The values of one constant: little-endian, row-major, 4-bit elements packed in pairs."""

    name: str
    element_type: int
    shape: tuple[int, ...]
    offset: int
    length: int
    sha256: str


class Manifest(_Struct, frozen=True):
    """All that is in the file."""

    producer: Producer
    source: Source
    size: int
    """Bytes of the file."""
    alignment: int
    weights: Weights
    """shared: used where they are mapped. private: each process packs a copy for its kernels."""
    optimization: Optimization
    opsets: dict[str, int]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    graph: Block
    """A `ModelProto`; the values of its large constants are the tensors, in the same order."""
    tensors: tuple[Tensor, ...]

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.length for tensor in self.tensors)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest as JSON."""
    return msgspec.json.encode(manifest)


def decode_manifest(document: bytes, file_bytes: int) -> Manifest:
    """Return the manifest of a file of `file_bytes` bytes.

    Raises:
        IrError: it is none, or says what cannot be.

    """
    try:
        manifest = msgspec.json.decode(document, type=Manifest)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise IrError(f"its manifest cannot be read: {error}") from error
    check_layout(manifest, file_bytes)
    return manifest


def check_layout(manifest: Manifest, file_bytes: int) -> None:
    """Raise unless every block lies in the file, on its boundary, and alone.

    Raises:
        IrError: names the block and what is wrong with it.

    """
    if manifest.size != file_bytes:
        what = "truncated" if file_bytes < manifest.size else "longer than it was written"
        raise IrError(f"the file is {what} ({file_bytes} bytes, its manifest says {manifest.size})")
    alignment = manifest.alignment
    if not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise IrError(f"its alignment is {alignment}; allowed: a power of two up to {MAX_ALIGNMENT}")
    _check_block("the graph", manifest.graph.offset, manifest.graph.length, HEADER_BYTES, file_bytes)
    if not 1 <= manifest.graph.length <= MAX_GRAPH_BYTES:
        raise IrError(f"its graph has {manifest.graph.length} bytes; allowed: 1 to {MAX_GRAPH_BYTES}")
    end = manifest.graph.offset + manifest.graph.length
    for tensor in manifest.tensors:
        what = f"tensor {tensor.name[:64]!r}"
        if tensor.offset % alignment:
            raise IrError(f"{what} begins at {tensor.offset}, not at a multiple of {alignment}")
        _check_block(what, tensor.offset, tensor.length, end, file_bytes)
        bits = ELEMENT_BITS.get(tensor.element_type)
        if bits is None or any(dim < 0 for dim in tensor.shape):
            raise IrError(
                f"{what} has element type {tensor.element_type} and shape {list(tensor.shape)[:16]}"
            )
        if size_of(bits, tensor.shape) != tensor.length:
            raise IrError(f"{what} has {tensor.length} bytes, its shape {list(tensor.shape)[:16]} has others")
        end = tensor.offset + tensor.length


def _check_block(what: str, offset: int, length: int, earliest: int, file_bytes: int) -> None:
    if offset < 0 or length < 0:
        raise IrError(f"{what} has a negative offset or length")
    if offset < earliest:
        raise IrError(f"{what} begins at {offset}, inside what lies before it (up to {earliest})")
    if offset + length > file_bytes:
        raise IrError(f"{what} ends at {offset + length}, after the file's {file_bytes} bytes")
