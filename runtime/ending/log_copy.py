"""A copy of all that a server and its workers write to standard error, of bounded size.

Standard error becomes a pipe. A thread of the parent passes on what comes out of it, and keeps it in files;
workers, which serve requests, do nothing else than before.
"""

import fcntl
import logging
import os
import threading
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

FILE_BYTES = 32 * 2**20
"""When the newest file is as large, it becomes the one before, and the one before that goes."""
_STANDARD_ERROR = 2
_PIPE_BYTES = 2**20
"""The most that an unprivileged process may ask for on a usual kernel."""
_PIECE = 65_536
_END_SECONDS = 5.0


class LogFiles:
    """The newest lines in two files: at least `file_bytes`, at most twice as many and one piece."""

    def __init__(self, folder: Path, file_bytes: int = FILE_BYTES) -> None:
        """Go on where the files in `folder` end.

        Raises:
            OSError: they cannot be written.

        """
        self.newest = folder / "server.log"
        self.before = folder / "server.log.1"
        self._file_bytes = file_bytes
        self._file = self.newest.open("ab", buffering=0)

    def write(self, piece: bytes) -> None:
        """Add `piece`. Files change between lines, if there are any."""
        self._file.write(piece)
        size = self._file.tell()
        if size >= self._file_bytes and (piece.endswith(b"\n") or size >= 2 * self._file_bytes):
            self._file.close()
            self.newest.replace(self.before)
            self._file = self.newest.open("ab", buffering=0)

    def paths(self) -> list[Path]:
        """Return the files that there are, in the order of their lines."""
        return [path for path in (self.before, self.newest) if path.exists()]

    def close(self) -> None:
        """Write no more."""
        self._file.close()


class LogCopy:
    """Copies standard error of this process, and of those that it starts, from its making until `close`."""

    def __init__(self, files: LogFiles) -> None:
        self._files = files
        self._outside = os.dup(_STANDARD_ERROR)
        reading, writing = os.pipe()
        with suppress(OSError):  # a smaller one does as well
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.dup2(writing, _STANDARD_ERROR)
        os.close(writing)
        self._thread = threading.Thread(target=self._run, args=(reading,), name="log-copy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Copy what was written so far, and write to the old standard error again."""
        os.dup2(self._outside, _STANDARD_ERROR)
        self._thread.join(_END_SECONDS)  # it ends with the last process that has the pipe

    def _run(self, reading: int) -> None:
        keeping = True
        while piece := os.read(reading, _PIECE):
            _pass_on(self._outside, piece)
            if keeping:
                try:
                    self._files.write(piece)
                except OSError as error:
                    keeping = False
                    line = f"the log is not kept from here on: {error.strerror}\n".encode()
                    _pass_on(self._outside, line)
        os.close(reading)


def _pass_on(descriptor: int, piece: bytes) -> None:
    rest = memoryview(piece)
    with suppress(OSError):  # nobody reads there any more; the copy goes on
        while rest:
            rest = rest[os.write(descriptor, rest) :]
