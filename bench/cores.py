"""On which cores a program runs, and how much it is favoured over what else runs there."""

from collections.abc import Sequence
from dataclasses import dataclass

_FAVOURED = 'echo "$0" > /proc/self/autogroup 2>/dev/null; exec nice -n "$0" "$@"'
"""The kernel weighs sessions first, then the programs within one, so a session's niceness counts too."""


@dataclass(frozen=True)
class Cores:
    """`which` is a list of cores as `taskset -c` takes it; `niceness` below 0 and `realtime` need root.

    `realtime`: no program of the usual kind interrupts it (SCHED_FIFO, the lowest priority).
    """

    which: str
    niceness: int = 0
    realtime: bool = False

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the command that runs `words` there. It must be started in a session of its own."""
        pinned = ["taskset", "-c", self.which, *words]
        if self.realtime:
            return ["chrt", "--fifo", "1", *pinned]
        return ["sh", "-c", _FAVOURED, str(self.niceness), *pinned] if self.niceness else pinned
