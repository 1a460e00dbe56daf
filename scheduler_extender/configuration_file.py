"""Reads the configuration file, and reads it again when it changes, without a restart."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from mcp2026.scheduler_extender.configuration import parse_configuration
from mcp2026.scheduler_extender.errors import ConfigurationError
from mcp2026.scheduler_extender.policy import Policy

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 2.0
"""How often the file is looked at. That of a ConfigMap is replaced through a link, which `stat` follows."""

_State = tuple[int, int, int, int]


class ConfigurationFile:
    """The file `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state: _State | None = None

    def read(self) -> Policy:
        """Return the policy that the file sets now.

        Raises:
            ConfigurationError: it cannot be read, or says something that cannot be.

        """
        self._state = self._look()
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(str(self._path), f"cannot be read: {error}") from error
        return parse_configuration(text, str(self._path))

    async def follow(
        self,
        taken: Callable[[Policy], None],
        refused: Callable[[str], None],
        interval_s: float = LOOK_INTERVAL_S,
    ) -> None:
        """Call `taken` or `refused` (with the reason) after each change, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            if self._look() == self._state:
                continue
            try:
                policy = self.read()
            except ConfigurationError as error:
                refused(str(error))
            else:
                log.info("took a new configuration from %s", self._path)
                taken(policy)

    def _look(self) -> _State | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
