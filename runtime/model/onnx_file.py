"""Is this file a whole ONNX model? Answered from a few bytes, before any worker is started.

An ONNX model is one protobuf message, `ModelProto`. Its outer fields are walked without reading what is in
them: a file cut short ends inside a field, and a file of another kind does not look like fields at all.
"""

import hashlib
import os
import stat
from pathlib import Path
from typing import BinaryIO

from mcp2026.runtime.errors import ModelLoadError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIELDS = {1: _VARINT, 2: _BYTES, 3: _BYTES, 4: _BYTES, 5: _VARINT, 6: _BYTES, 7: _BYTES, 8: _BYTES}
"""Fields of ModelProto and how they are written; later fields exist and are not checked."""
_GRAPH = 7
_LAST_KNOWN_FIELD = 64

_GET_A_MODEL = "Check the path, or make a sample model: python -m tools.models resnet50 --output ./models"
_COPY_AGAIN = "Copy or export the file again"
_NOT_ONNX = "Give a model in ONNX format (a .onnx file); other formats must be converted first"


_FILES_OF_A_FOLDER = ("model.mcpir", "model.onnx")
"""Looked for in this order: a converted model may lie beside the one it was made from."""


class _NotOnnxError(Exception):
    pass


class _TruncatedError(Exception):
    pass


def file_of(path: str) -> str:
    """Return the model file that `path` names: itself, or the one in that folder.

    Raises:
        ModelLoadError: it is a folder without a model.

    """
    try:
        folder = Path(path)
        if not folder.is_dir():
            return path
        found = [name for name in _FILES_OF_A_FOLDER if (folder / name).is_file()]
    except (OSError, ValueError):
        return path  # whoever opens it says what is wrong
    if not found:
        raise ModelLoadError(
            path, f"it is a folder without {' or '.join(_FILES_OF_A_FOLDER)}", "Give the model file in it"
        )
    return str(folder / found[0])


def check_onnx_file(path: str) -> None:
    """Raise unless `path` is a readable file that holds the outer form of a complete ONNX model.

    Raises:
        ModelLoadError: says what is wrong with the file and what to do.

    """
    file_path = Path(path)
    try:
        mode = file_path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ModelLoadError(path, "it is a folder", "Give the .onnx file in it")
        if not stat.S_ISREG(mode):  # to open a pipe would wait for its other end
            raise ModelLoadError(path, "it is no regular file", "Copy the model into a file")
        with file_path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise ModelLoadError(path, "the file is empty", _COPY_AGAIN)
            _walk(file, size)
    except FileNotFoundError as error:
        raise ModelLoadError(path, "no such file", _GET_A_MODEL) from error
    except OSError as error:
        raise ModelLoadError(path, str(error.strerror), "Make the file readable for this user") from error
    except ValueError as error:  # a NUL, or half a surrogate pair
        raise ModelLoadError(path, "no file can have this name", _GET_A_MODEL) from error
    except _TruncatedError as error:
        raise ModelLoadError(path, f"the file is truncated ({error})", _COPY_AGAIN) from error
    except _NotOnnxError as error:
        raise ModelLoadError(path, f"it is not an ONNX model ({error})", _NOT_ONNX) from error


def check_digest(path: str, expected: str) -> None:
    """Raise unless the SHA-256 of the file is `expected`, in lower-case hex.

    Raises:
        ModelLoadError: it is another.

    """
    with Path(path).open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        raise ModelLoadError(
            path,
            f"its sha256 is {actual}, but the serving configuration asks for {expected}",
            "The file was changed or is another version: copy it again, or correct the digest",
        )


def _walk(file: BinaryIO, size: int) -> None:
    position = 0
    seen: set[int] = set()
    while position < size:
        key, position = _varint(file, position, size)
        field, wire_type = key >> 3, key & 7
        if not 1 <= field <= _LAST_KNOWN_FIELD or _FIELDS.get(field, wire_type) != wire_type:
            raise _NotOnnxError(f"unexpected bytes at offset {position - 1}")
        if wire_type == _VARINT:
            _, position = _varint(file, position, size)
        elif wire_type == _BYTES:
            length, position = _varint(file, position, size)
            position += length
        elif wire_type in (_FIXED32, _FIXED64):
            position += 4 if wire_type == _FIXED32 else 8
        else:
            raise _NotOnnxError(f"unexpected bytes at offset {position - 1}")
        if position > size:
            if 1 not in seen:  # a model begins with its version; anything else only looks like a long field
                raise _NotOnnxError("it does not begin with an ONNX version")
            raise _TruncatedError(f"{size} bytes of at least {position}")
        seen.add(field)
        file.seek(position)
    if _GRAPH not in seen:
        raise _NotOnnxError("it holds no graph") if 1 not in seen else _TruncatedError("no graph in it")


def _varint(file: BinaryIO, position: int, size: int) -> tuple[int, int]:
    file.seek(position)
    encoded = file.read(10)
    value = 0
    for index, byte in enumerate(encoded):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    if position + len(encoded) >= size:
        raise _TruncatedError("it ends inside a number")
    raise _NotOnnxError(f"unexpected bytes at offset {position}")
