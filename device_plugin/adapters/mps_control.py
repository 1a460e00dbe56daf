"""Speaks to an MPS control daemon by NVIDIA's own program, which passes lines from stdin on to it. Blocking.

Source: NVIDIA's Multi-Process Service documentation, "nvidia-cuda-mps-control".
"""

import os
import subprocess
from pathlib import Path

from mcp2026.device_plugin.sharing.errors import MpsError
from mcp2026.device_plugin.sharing.mps_limits import MpsLimits

PROGRAM = "nvidia-cuda-mps-control"


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
        return frozenset(int(word) for word in self._ask("get_server_list").split() if word.isdigit())

    def set_ceiling(self, ceiling: MpsLimits) -> None:
        """Set what a client may have at most; what its environment asks for can only be less.

        Raises:
            MpsError: as `thread_percentage`.

        """
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
            done = subprocess.run(
                [self._program],
                input=f"{command}\n",
                env=self._environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._deadline_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise MpsError(f"the MPS daemon did not answer {command} within {self._deadline_s:g} s") from None
        except OSError as error:
            raise MpsError(
                f"{self._program} cannot be run ({error.strerror}): the driver's compute programs must be in "
                "the plugin's container (NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
            ) from error
        if done.returncode:
            said = (done.stdout + done.stderr).strip()[:200] or f"exit status {done.returncode}"
            raise MpsError(f"the MPS daemon refused {command}: {said}")
        return done.stdout.strip()
