"""What a test changes while a program runs on the fake: the control file, the state file and events."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

WHOLE = 0xFFFFFFFF
"""The gi and ci of what concerns a GPU and no MIG device."""

SINGLE_BIT_ECC, DOUBLE_BIT_ECC, XID = 0x1, 0x2, 0x8
GPU_UNAVAILABLE, RECOVERY_ACTION = 0x4000, 0x8000
"""Types of events."""


def replace_file(path: Path, text: str) -> None:
    """Write by rename, so that nobody reads half a file."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text)
    unfinished.replace(path)


@dataclass(frozen=True, slots=True)
class MigState:
    """What hardware keeps, as lines; `state.c` has their format."""

    lines: tuple[str, ...]

    def mode(self, gpu: int) -> tuple[int, int] | None:
        """Return the MIG mode of a GPU and the one that is pending; None: nobody has changed it yet."""
        for line in self.lines:
            words = line.split()
            if words[:2] == ["mig", str(gpu)]:
                return int(words[2]), int(words[3])
        return None

    def with_mode(self, gpu: int, current: int, pending: int) -> "MigState":
        """Return it with another MIG mode of a GPU."""
        return self._without(gpu, "mig")._with(f"mig {gpu} {current} {pending}")

    def without_instances(self, gpu: int) -> "MigState":
        """Return it without the instances of a GPU."""
        return self._without(gpu, "instance", "compute_instance")

    def instances(self, gpu: int) -> list[str]:
        """Return the UUIDs of the MIG devices of a GPU."""
        split = [line.split() for line in self.lines]
        return [words[6] for words in split if words[:2] == ["compute_instance", str(gpu)]]

    def with_instance(self, gpu: int, gi: int, profile_id: int, start: int) -> "MigState":
        """Return it with a GPU instance that has no compute instance."""
        return self._with(f"instance {gpu} {gi} {profile_id} {start}")

    def _without(self, gpu: int, *kinds: str) -> "MigState":
        gone = [[kind, str(gpu)] for kind in kinds]
        return MigState(tuple(line for line in self.lines if line.split()[:2] not in gone))

    def _with(self, line: str) -> "MigState":
        return MigState((*self.lines, line))


@contextmanager
def locked_state(path: Path) -> Iterator[Callable[[MigState | None], MigState]]:
    """Hold the state's lock; the function that is given returns the state, or writes another one."""
    with Path(f"{path}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def exchange(new: MigState | None = None) -> MigState:
            if new is not None:
                replace_file(path, "".join(f"{line}\n" for line in new.lines))
                return new
            return MigState(tuple(path.read_text().splitlines()) if path.exists() else ())

        yield exchange
