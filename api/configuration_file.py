"""A configuration file of a program: read at the start, and again when it changes, without a restart."""

import asyncio
import codecs
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Generic, TypeVar

from mcp2026.api.errors import ConfigurationError

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 2.0
"""How often the file is looked at. That of a ConfigMap is replaced through a link, which `stat` follows."""

_Content = TypeVar("_Content")
_State = tuple[int, int, int, int]


class ConfigurationFile(Generic[_Content]):
    """The file `path`. `parse` takes its text and its name, and raises ConfigurationError."""

    def __init__(self, path: Path, parse: Callable[[str, str], _Content]) -> None:
        self.path = path
        self._parse = parse
        self._state: _State | None = None

    def read(self) -> _Content:
        """Return what the file says now.

        Raises:
            ConfigurationError: it cannot be read, or says something that cannot be.

        """
        self._state = self._look()
        try:
            text = _text(self.path.read_bytes())
        except OSError as error:
            raise ConfigurationError(str(self.path), f"cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            problem = f"{error.reason} at byte {error.start}"
            raise ConfigurationError(
                str(self.path), f"not {error.encoding}: {problem}; allowed: UTF-8, or UTF-16 with its mark"
            ) from error
        return self._parse(text, str(self.path))

    async def follow(
        self,
        taken: Callable[[_Content], None],
        refused: Callable[[str], None],
        interval_s: float = LOOK_INTERVAL_S,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Call `taken` or `refused` (with the reason) after each change, until cancelled.

        The file is looked at whenever `pause(interval_s)` returns.
        """
        while True:
            await pause(interval_s)
            if self._look() == self._state:
                continue
            try:
                content = self.read()
            except ConfigurationError as error:
                refused(str(error))
            else:
                log.info("took a new configuration from %s", self.path)
                taken(content)

    def _look(self) -> _State | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _text(document: bytes) -> str:
    """Return UTF-8 without a byte order mark, which editors of Windows write, or UTF-16 that has one."""
    marked = document.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return document.decode("utf-16" if marked else "utf-8-sig")
