"""NVIDIA's MPS control program as a real process without a GPU, and how a test makes it misbehave."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAM = Path(__file__).with_name("nvidia_cuda_mps_control.py")


class FakeMps:
    """The program, installed in `directory`; all that is started from it is ended by `running_mps`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.program = directory / "nvidia-cuda-mps-control"
        self.program.write_text(f"#!{sys.executable} -S\n{PROGRAM.read_text()}")
        self.program.chmod(0o755)
        self._behaviour = directory / "behaviour"
        self.behave()
        self.environment = {"FAKE_MPS": str(self._behaviour)}

    def behave(self, *how: str) -> None:
        """Misbehave from now on as the lines `how` say; none of them: as it should."""
        draft = self._behaviour.with_suffix(".new")
        draft.write_text("\n".join(how))
        draft.replace(self._behaviour)

    def processes(self) -> list[int]:
        """Return the daemons that run from this program."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if path.read_bytes().endswith(f"{self.program}\0-f\0".encode()):
                    found.append(int(path.parent.name))
        return found


@contextmanager
def running_mps(directory: Path) -> Iterator[FakeMps]:
    """Install the program in `directory`; end its daemons at last."""
    fake = FakeMps(directory)
    try:
        yield fake
    finally:
        for pid in fake.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
