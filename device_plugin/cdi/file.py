"""The file of the CDI specification: written whole or not at all, and only when its content changes."""

import json
import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from mcp2026.device_plugin.cdi.specification import CDI_KIND, device_names
from mcp2026.device_plugin.errors import CdiDirectoryError

log = logging.getLogger(__name__)

FILE_NAME = f"{CDI_KIND.replace('/', '-')}.json"
_UNFINISHED = f".{FILE_NAME}."


class SpecificationFile:
    """The specification in the folder `directory`, which the container runtime watches."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / FILE_NAME
        self._written: dict[str, Any] | None = None

    @property
    def names(self) -> frozenset[str]:
        """The UUIDs that the file knows."""
        return device_names(self._written) if self._written is not None else frozenset()

    def clean(self) -> None:
        """Remove what a plugin left that was killed while it wrote."""
        with suppress(OSError):
            for path in self._directory.glob(f"{_UNFINISHED}*"):
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the file, if it is there: nothing refers to it any more."""
        self.clean()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def write(self, document: dict[str, Any]) -> None:
        """Bring the file to `document`, unless it is that already.

        Raises:
            CdiDirectoryError: the folder cannot be written.

        """
        if document == self._written and self._path.exists():
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            descriptor, unfinished = tempfile.mkstemp(prefix=_UNFINISHED, dir=self._directory)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(document, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            Path(unfinished).chmod(0o644)
            Path(unfinished).replace(self._path)
        except OSError as error:
            raise CdiDirectoryError(self._directory, str(error)) from error
        self._written = document
        log.info("wrote the CDI specification", extra={"file": str(self._path), "devices": len(self.names)})
