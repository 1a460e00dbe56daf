"""The MPS daemons of this node's GPUs: one for each GPU in mode MPS, with its own pipes and logs. Blocking.

Layout of the folder, which must be at the same path on the host: `<uuid>/pipe`, `<uuid>/log`,
`<uuid>/daemon.json` and, for all, `shm`.
"""

import logging
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import msgspec

from mcp2026.api.gpu_sharing import Sharing
from mcp2026.device_plugin.adapters.mps_control import PROGRAM, MpsControl, daemon_environment
from mcp2026.device_plugin.adapters.mps_record import (
    MpsRecord,
    folder_error,
    process_start_time,
    read_record,
    write_record,
)
from mcp2026.device_plugin.driver import ComputeMode
from mcp2026.device_plugin.sharing.environment import pipe_directory
from mcp2026.device_plugin.sharing.errors import MpsError
from mcp2026.device_plugin.sharing.mps_limits import MpsLimits
from mcp2026.device_plugin.sharing.observation import DaemonState, MpsDaemon

log = logging.getLogger(__name__)

ANSWER_S = 3.0
"""Longest wait for an answer of a daemon."""
START_S, STOP_S = 10.0, 10.0
"""Longest wait for a daemon to serve, or to end, before force is used."""
TAIL_BYTES = 300
"""How much of a dead daemon's log is told."""
OUTPUT = "output.log"


class DaemonsSeen(NamedTuple):
    """The daemons by UUID of their GPU, and by the same why a record cannot be read."""

    daemons: dict[str, MpsDaemon]
    unreadable: dict[str, str]


class MpsDaemons:
    """All daemons below `directory`; `program` is NVIDIA's."""

    def __init__(self, directory: Path, program: str = PROGRAM, answer_s: float = ANSWER_S) -> None:
        self._directory = directory
        self._program = program
        self._answer_s = answer_s
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def observe(self) -> DaemonsSeen:
        """Return how the reserved daemons are; many that do not answer cost the time of one."""
        seen = DaemonsSeen({}, {})
        asking = []
        for path in self._directory.glob("*/daemon.json"):
            uuid = path.parent.name
            try:
                record = read_record(path)
            except MpsError as error:
                seen.unreadable[uuid] = str(error)
                continue
            if record is not None:
                asking.append(Thread(target=self._observe, args=(uuid, record, seen), daemon=True))
                asking[-1].start()
        for thread in asking:
            thread.join()
        return seen

    def reserve(self, uuid: str, sharing: Sharing, compute_mode_before: ComputeMode) -> None:
        """Record that the GPU is to have a daemon, before anything is changed.

        Raises:
            MpsError: the record cannot be written.

        """
        write_record(self._record_path(uuid), MpsRecord(sharing, compute_mode_before))

    def start(self, uuid: str, ceiling: MpsLimits) -> None:
        """Start the daemon in a session of its own, so that it outlives this process; wait until it serves.

        Raises:
            MpsError: it ended at once or does not answer; its last words are told.

        """
        record = self._record(uuid)
        pipe, logs = pipe_directory(self._directory, uuid), self._log_directory(uuid)
        pid = self._unrecorded(pipe)
        try:
            for folder, mode in ((pipe, 0o755), (logs, 0o755), (self._directory / "shm", 0o1777)):
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(mode)
            for left in pipe.iterdir() if pid is None else ():
                left.unlink()  # the folder itself is mounted in containers, and stays
        except OSError as error:
            raise folder_error(self._directory, error) from error
        if pid is None:
            pid = self._spawn(uuid)
        write_record(
            self._record_path(uuid),
            msgspec.structs.replace(record, pid=pid, start_time=process_start_time(pid) or 0),
        )
        self._await_serving(uuid)
        self._control(uuid).set_ceiling(ceiling)
        log.info("the MPS daemon of %s serves", uuid, extra={"gpu": uuid, "pid": pid})

    def stop(self, uuid: str) -> None:
        """End the daemon and its servers: by `quit`, else by force.

        Raises:
            MpsError: it cannot be ended.

        """
        record = self._record(uuid)
        if record.alive:
            try:
                self._control(uuid).quit()
            except MpsError as error:
                log.warning("%s; it is ended by force", error, extra={"gpu": uuid})
                self._kill(record)
            if not self._ended(record):
                self._kill(record)
                if not self._ended(record):
                    raise MpsError(f"the MPS daemon of {uuid} (process {record.pid}) does not end")
        write_record(self._record_path(uuid), msgspec.structs.replace(record, pid=0, start_time=0))

    def release(self, uuid: str) -> None:
        """Forget the daemon.

        Raises:
            MpsError: the record cannot be removed.

        """
        try:
            self._record_path(uuid).unlink(missing_ok=True)
        except OSError as error:
            raise MpsError(f"{self._record_path(uuid)} cannot be removed: {error.strerror}") from error

    def _observe(self, uuid: str, record: MpsRecord, seen: DaemonsSeen) -> None:
        try:
            seen.daemons[uuid] = self._observed(uuid, record)
        except Exception as error:  # whatever it is: a daemon that nobody saw is not one that is not there
            log.exception("the MPS daemon of %s cannot be looked at", uuid, extra={"gpu": uuid})
            seen.unreadable[uuid] = f"its MPS daemon cannot be looked at: {type(error).__name__}: {error}"

    def _observed(self, uuid: str, record: MpsRecord) -> MpsDaemon:
        def daemon(state: DaemonState, pids: frozenset[int] = frozenset(), reason: str = "") -> MpsDaemon:
            return MpsDaemon(record.sharing, record.compute_mode_before, state, pids, reason)

        self._reap(uuid)
        if not record.alive:
            return daemon(DaemonState.DOWN, reason=self._last_words(uuid))
        control = self._control(uuid)
        try:
            control.thread_percentage()
            return daemon(DaemonState.SERVING, control.servers() | {record.pid})
        except MpsError as error:
            return daemon(DaemonState.SILENT, frozenset({record.pid}), str(error))

    def _spawn(self, uuid: str) -> int:
        try:
            output = (self._log_directory(uuid) / OUTPUT).open("wb")
        except OSError as error:
            raise folder_error(self._directory, error) from error
        with output:
            try:
                child = subprocess.Popen(
                    [self._program, "-f"],
                    env=self._environment(uuid),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd="/",
                    start_new_session=True,
                )
            except OSError as error:
                raise MpsError(
                    f"{self._program} cannot be run ({error.strerror}): the driver's compute programs must "
                    "be in the plugin's container (NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
                ) from error
        self._children[uuid] = child
        return child.pid

    def _unrecorded(self, pipe: Path) -> int | None:
        """Return the process of a daemon that was started just before this plugin's predecessor ended."""
        with suppress(OSError, ValueError):
            pid = int((pipe / f"{PROGRAM}.pid").read_text())
            if PROGRAM.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        return None

    def _await_serving(self, uuid: str) -> None:
        end = time.monotonic() + START_S
        while True:
            daemon = self._observed(uuid, self._record(uuid))
            if daemon.state is DaemonState.SERVING:
                return
            if daemon.state is DaemonState.DOWN or time.monotonic() > end:
                raise MpsError(f"the MPS daemon does not serve: {daemon.reason}")
            time.sleep(0.05)

    def _ended(self, record: MpsRecord) -> bool:
        end = time.monotonic() + STOP_S
        while record.alive:
            for uuid in list(self._children):
                self._reap(uuid)
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def _kill(self, record: MpsRecord) -> None:
        with suppress(ProcessLookupError):
            if os.getpgid(record.pid) == record.pid:  # its servers are in its group
                os.killpg(record.pid, signal.SIGKILL)
            else:
                os.kill(record.pid, signal.SIGKILL)

    def _reap(self, uuid: str) -> None:
        child = self._children.get(uuid)
        if child is not None and child.poll() is not None:
            del self._children[uuid]

    def _last_words(self, uuid: str) -> str:
        for name in (OUTPUT, "control.log"):
            with suppress(OSError):
                words = (self._log_directory(uuid) / name).read_bytes()[-TAIL_BYTES:].decode(errors="replace")
                if words.strip():
                    return " ".join(words.split())
        return "it said nothing"

    def _record(self, uuid: str) -> MpsRecord:
        record = read_record(self._record_path(uuid))
        if record is None:
            raise MpsError(f"{self._record_path(uuid)} is gone: it is written anew")
        return record

    def _control(self, uuid: str) -> MpsControl:
        return MpsControl(self._program, self._environment(uuid), self._answer_s)

    def _environment(self, uuid: str) -> dict[str, str]:
        return daemon_environment(uuid, pipe_directory(self._directory, uuid), self._log_directory(uuid))

    def _log_directory(self, uuid: str) -> Path:
        return self._directory / uuid / "log"

    def _record_path(self, uuid: str) -> Path:
        return self._directory / uuid / "daemon.json"
