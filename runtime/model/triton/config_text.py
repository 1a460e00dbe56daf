"""config.pbtxt, read into the message that it is the text of."""

import stat
from pathlib import Path

from google.protobuf import text_format

from mcp2026.runtime.errors import ModelLoadError
from mcp2026.runtime.model.triton.model_config_pb2 import ModelConfig

CONFIG_FILE = "config.pbtxt"
MAX_CONFIG_BYTES = 1024 * 1024


def read_config(path: Path) -> ModelConfig | None:
    """Return what the file says, None if there is no file.

    Raises:
        ModelLoadError: it cannot be read, or parsed: line and column are named.

    """
    try:
        if not path.exists():
            return None
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # to open a pipe would wait for its other end
            raise ModelLoadError(str(path), "it is no regular file", "Give the configuration as a file")
        if found.st_size > MAX_CONFIG_BYTES:
            raise ModelLoadError(
                str(path), f"it is larger than {MAX_CONFIG_BYTES} bytes", "Give a model configuration"
            )
        document = path.read_bytes()
    except OSError as error:
        raise ModelLoadError(
            str(path), str(error.strerror), "Make the file readable for this user"
        ) from error
    return parse_config(document, str(path))


def parse_config(document: bytes, path: str) -> ModelConfig:
    """Return the configuration in `document`; `path` is named in errors.

    Raises:
        ModelLoadError: it is no model configuration.

    """
    try:
        return text_format.Parse(document.decode(), ModelConfig())
    except text_format.ParseError as error:
        raise ModelLoadError(path, _where(error), "Correct the configuration") from error
    except UnicodeDecodeError as error:
        line = document.count(b"\n", 0, error.start) + 1
        raise ModelLoadError(path, f"line {line} is not UTF-8", "Save it as UTF-8") from error
    except RecursionError as error:
        raise ModelLoadError(path, "it is nested too deeply", "Correct the configuration") from error


def _where(error: text_format.ParseError) -> str:
    line, column = error.GetLine(), error.GetColumn()
    said = str(error).removeprefix(f"{line}:{column} : ")
    said = " ".join(said.replace("mcp2026.triton.", "").split())[:300]
    said = said.rstrip(".")
    return said if line is None else f"line {line}, column {column}: {said}"
