"""Speaks to an MPS control daemon by NVIDIA's own program, which passes lines from stdin on to it. Blocking.

Source: NVIDIA's Multi-Process Service documentation, "nvidia-cuda-mps-control".
"""

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from mcp2026.device_plugin.sharing.errors import MpsError
from mcp2026.device_plugin.sharing.mps_limits import MpsLimits

PROGRAM = "nvidia-cuda-mps-control"
_PROCESS_ID = re.compile(r"[1-9][0-9]{0,9}")
GIVE_UP_S = 1.0
"""Longest wait for a program that was ended by force."""


def daemon_environment(uuid: str, pipe: Path, log: Path) -> dict[str, str]:
    """Return the environment that binds a daemon, or a question to it, to the GPU `uuid` and its folders."""
    return os.environ | {
        "CUDA_VISIBLE_DEVICES": uuid,
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
        "CUDA_MPS_LOG_DIRECTORY": str(log),
    }


class MpsControl:
    """The daemon whose pipes are named in `environment`; each answer may take `deadline_s`."""

    def __init__(self, program: str, environment: dict[str, str], deadline_s: float) -> None:
        self._program = program
        self._environment = environment
        self._deadline_s = deadline_s

    def thread_percentage(self) -> float:
        """Return the default of `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`: any answer shows that the daemon serves.

        Raises:
            MpsError: no daemon answered in time, or with something else.

        """
        answer = self._ask("get_default_active_thread_percentage")
        try:
            return float(answer)
        except ValueError:
            raise MpsError(f"the MPS daemon answered {answer[:80]!r} when asked for its percentage") from None

    def servers(self) -> frozenset[int]:
        """Return the process ids of the daemon's servers.

        Raises:
            MpsError: as `thread_percentage`.

        """
        words = self._ask("get_server_list").split()
        return frozenset(int(word) for word in words if _PROCESS_ID.fullmatch(word))

    def set_ceiling(self, ceiling: MpsLimits) -> None:
        """Set what a client may have at most; what its environment asks for can only be less.

        Raises:
            MpsError: as `thread_percentage`.

        """
        if ceiling.memory_mib:
            self._ask(f"set_default_device_pinned_mem_limit 0 {ceiling.memory_mib}M")
        self._ask(f"set_default_active_thread_percentage {ceiling.thread_percentage}")

    def quit(self) -> None:
        """Ask the daemon to end with its servers.

        Raises:
            MpsError: as `thread_percentage`.

        """
        self._ask("quit")

    def _ask(self, command: str) -> str:
        try:
            asking = subprocess.Popen(
                [self._program],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise MpsError(
                f"{self._program} cannot be run ({error.strerror}): the driver's compute programs must be in "
                "the plugin's container (NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
            ) from error
        try:
            answer, complaint = asking.communicate(f"{command}\n", timeout=self._deadline_s)
        except subprocess.TimeoutExpired:
            _give_up(asking)
            raise MpsError(f"the MPS daemon did not answer {command} within {self._deadline_s:g} s") from None
        if asking.returncode:
            said = (answer + complaint).strip()[:200] or f"exit status {asking.returncode}"
            raise MpsError(f"the MPS daemon refused {command}: {said}")
        return answer.strip()


def _give_up(asking: "subprocess.Popen[str]") -> None:
    """End the program with all that it started: a child of it would hold the pipes open for ever."""
    with suppress(ProcessLookupError):
        os.killpg(asking.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):  # it hangs in the kernel: leave it
        asking.communicate(timeout=GIVE_UP_S)
