"""The first 64 bytes of a file: what it is, which version, and where its manifest lies."""

import hashlib
import struct
from dataclasses import dataclass

MAGIC = b"\x89MCPIR\r\n"
"""No text, and changed by whatever would change line ends or cut the eighth bit."""
MAJOR, MINOR = 1, 0
HEADER_BYTES = 64
MAX_MANIFEST_BYTES = 64 * 1024 * 1024
"""About 200,000 tensors; more is a broken header, and would be read into memory."""

_HEADER = struct.Struct("<8sHHIQQ32s")
"""Magic, major and minor version, bytes of the header, offset and bytes of the manifest, its SHA-256."""


class IrError(Exception):
    """The bytes are not a model in this format."""


@dataclass(frozen=True, slots=True)
class Header:
    """Where the manifest lies."""

    manifest_offset: int
    manifest_length: int
    manifest_sha256: bytes
    major: int = MAJOR
    minor: int = MINOR

    def encode(self) -> bytes:
        """Return the 64 bytes."""
        return _HEADER.pack(
            MAGIC,
            self.major,
            self.minor,
            HEADER_BYTES,
            self.manifest_offset,
            self.manifest_length,
            self.manifest_sha256,
        )

    def check_manifest(self, manifest: bytes) -> None:
        """Raise unless `manifest` is the one that the header was written for.

        Raises:
            IrError: it is not.

        """
        if hashlib.sha256(manifest).digest() != self.manifest_sha256:
            raise IrError("its manifest was changed: the digest in the header is another")


def decode_header(encoded: bytes, file_bytes: int) -> Header:
    """Return the header of a file of `file_bytes` bytes from its first 64.

    Raises:
        IrError: it is no header, is of a newer version, or points outside the file.

    """
    if not encoded.startswith(MAGIC[: max(1, len(encoded))]):
        raise IrError("it does not begin as one")
    if len(encoded) < HEADER_BYTES:
        raise IrError(f"the file is truncated (it has {len(encoded)} bytes, the header alone {HEADER_BYTES})")
    _, major, minor, header_bytes, offset, length, digest = _HEADER.unpack(encoded[:HEADER_BYTES])
    if major != MAJOR:
        raise IrError(f"it has format version {major}.{minor}, this runtime reads {MAJOR}.x")
    if header_bytes != HEADER_BYTES:
        raise IrError(f"its header says that it has {header_bytes} bytes instead of {HEADER_BYTES}")
    if not 2 <= length <= MAX_MANIFEST_BYTES:
        raise IrError(f"its manifest has {length} bytes; allowed: 2 to {MAX_MANIFEST_BYTES}")
    if offset < HEADER_BYTES:
        raise IrError(f"its manifest begins at {offset}, inside the header")
    if offset + length > file_bytes:
        raise IrError(f"the file is truncated ({file_bytes} bytes; the manifest ends at {offset + length})")
    return Header(offset, length, digest, major, minor)
