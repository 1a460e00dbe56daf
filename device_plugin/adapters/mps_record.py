"""The record of a GPU's MPS daemon on disk, and whether its process still lives.

By it a plugin that starts anew takes over a daemon with clients, and restores the compute mode after one that
it finds dead.
"""

import os
from pathlib import Path

import msgspec

from mcp2026.api.gpu_sharing import Sharing
from mcp2026.device_plugin.driver import ComputeMode
from mcp2026.device_plugin.sharing.errors import MpsError


class MpsRecord(msgspec.Struct, frozen=True, rename="camel"):
    """What a daemon was reserved for. `start_time` is the process's, in clock ticks since boot."""

    sharing: Sharing
    compute_mode_before: ComputeMode
    pid: int = 0
    """0: no process was started yet."""
    start_time: int = 0

    @property
    def alive(self) -> bool:
        """Whether the process is the one that was started, and not another one with its number."""
        return self.pid > 0 and process_start_time(self.pid) == self.start_time


def read_record(path: Path) -> MpsRecord | None:
    """Return the record at `path`; None when there is none.

    Raises:
        MpsError: it cannot be read.

    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=MpsRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise MpsError(f"{path} cannot be read ({error}): remove it once no MPS daemon runs") from error


def write_record(path: Path, record: MpsRecord) -> None:
    """Write `record` so that a reader sees the old one or the new one, whole.

    Raises:
        MpsError: it cannot be written.

    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        with draft.open("wb") as file:
            file.write(msgspec.json.encode(record))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise folder_error(path, error) from error


def process_start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None when it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def folder_error(path: Path, error: OSError) -> MpsError:
    """Return that `path`, in the folder of MPS, cannot be used as it must be."""
    return MpsError(
        f"{error.filename or path}: {error.strerror}: --mps-directory must be a folder that can be written, "
        "at the same path on the host"
    )
