"""Where slow results are kept between runs, under which key, and who may write them.

Everything here lies outside the repository and may be deleted at any time while no run is going on.
"""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

KEY_DIGITS = 16
"""Hexadecimal digits kept of a content key: 64 bits, ample for the few entries of one cache."""


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for built programs and images: MCP2026_CACHE, or mcp2026 in the user's cache."""
    if own := environment.get("MCP2026_CACHE"):
        return Path(own)
    if shared := environment.get("XDG_CACHE_HOME"):
        return Path(shared) / "mcp2026"
    return Path.home() / ".cache" / "mcp2026"


def content_key(parts: Mapping[str, bytes]) -> str:
    """Return a key that changes when any part changes, is added, removed or renamed.

    Names and contents are each preceded by their length, so that no two different sets of parts
    read the same; the order in which the parts are given does not matter.
    """
    digest = hashlib.sha256()
    for name in sorted(parts):
        for text in (name.encode(), parts[name]):
            digest.update(len(text).to_bytes(8, "big"))
            digest.update(text)
    return digest.hexdigest()[:KEY_DIGITS]


def folder_contents(folder: Path) -> dict[str, bytes]:
    """Return what a folder holds as parts for `content_key`: files with their mode, links by target."""
    parts: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if "__pycache__" in path.parts:
            continue
        if path.is_symlink():
            parts[name] = b"-> " + str(path.readlink()).encode()
        elif path.is_file():
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").digest()
            executable = b"x" if path.stat().st_mode & 0o111 else b"-"
            parts[name] = executable + digest
    return parts


@contextmanager
def held(lock: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a lock file for the length of the block; the system releases it if the holder is killed.

    `waiting` is called once when another process holds the lock, before waiting for it.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Give a temporary path beside `target` to write to; it becomes `target` if the block succeeds.

    A build that is killed never leaves half a file under the final name.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        temporary = Path(folder) / target.name
        yield temporary
        temporary.replace(target)
