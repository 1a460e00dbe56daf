"""One `mcp2026-server` process: started so that it never outlives us, asked whether it is ready, ended."""

import contextlib
import ctypes
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcp2026.cli.pod_process import LOOPBACK

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_TAIL_BYTES = 2_000
_REFUSAL = b"a revision cannot be served"
"""How a server's log begins to tell that it stays with the revision before."""


@dataclass(slots=True)
class ServerProcess:
    """A process, the port that it listens on, and the file that its log goes to."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    _read_until: int = 0

    @property
    def exit_code(self) -> int | None:
        """The exit code, 128 + n after signal n as in a container; None while it runs."""
        code = self.process.poll()
        return 128 - code if code is not None and code < 0 else code

    def log_tail(self) -> str:
        """Return the end of its log."""
        return self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()

    def is_ready(self) -> bool:
        """Ask GET /readyz."""
        try:
            return self._get("/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def live_revision(self) -> int:
        """Ask GET /v1/models for the revision that is served; 0 while there is no answer."""
        try:
            return int(json.loads(self._get("/v1/models")[1])["models"][0]["revision"])
        except (OSError, http.client.HTTPException, ValueError, LookupError):
            return 0

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=2)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def refusals(self) -> list[str]:
        """Return what the log says, since the last call, of revisions that could not be served."""
        with self.log.open("rb") as log:
            log.seek(self._read_until)
            fresh = log.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._read_until += len(whole)
        return [line.decode(errors="replace") for line in whole.splitlines() if _REFUSAL in line]

    def ask_to_end(self) -> None:
        """Send SIGTERM: it drains and ends."""
        if self.process.poll() is None:
            self.process.terminate()

    def end(self, seconds: float) -> None:
        """Wait for its end; after `seconds` kill it with all processes that it started."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        # Its workers are in its process group, and may have outlived it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def start_server(
    arguments: Sequence[str], environment: Mapping[str, str], port: int, log: Path
) -> ServerProcess:
    """Start a server. If this process dies, even by SIGKILL, the kernel tells the server to end."""
    parent = os.getpid()

    def end_with_parent() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the kernel was asked
            os._exit(1)

    with log.open("ab") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "mcp2026.runtime", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env=dict(environment),
            start_new_session=True,  # Ctrl-C goes to us alone, and we end it in order
            preexec_fn=end_with_parent,
        )
    return ServerProcess(process, port, log)
