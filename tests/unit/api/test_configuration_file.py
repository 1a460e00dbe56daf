"""A configuration file is read however an editor wrote it, or refused in words."""

from pathlib import Path

import pytest

from mcp2026.api.configuration_file import ConfigurationFile
from mcp2026.api.errors import ConfigurationError


def read(path: Path) -> str:
    return ConfigurationFile(path, lambda text, source: f"{source.rpartition('/')[2]}: {text}").read()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_is_read_with_and_without_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes("packing: Päck".encode(encoding))
    assert read(path) == "c.yaml: packing: Päck"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"packing: \xff", "not utf-8: invalid start byte at byte 9; allowed: UTF-8"),
        (b"\xff\xfea", "not utf-16-le: truncated data at byte"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_what_is_no_text_is_refused_by_name(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "c.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"c.yaml: {problem}"):
        read(path)
