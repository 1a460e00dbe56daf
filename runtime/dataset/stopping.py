"""How a run is told to stop: asked at every safe point, and set from anywhere."""

import threading

from mcp2026.runtime.dataset.errors import StoppedError


class Stop:
    """Set once, never unset."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Ask the run to stop. Safe in a signal handler of the main thread and in any thread."""
        self._event.set()

    @property
    def is_set(self) -> bool:
        """Whether the run was asked to stop."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for so long, or until the run was asked to stop; return whether it was."""
        return self._event.wait(seconds)

    def check(self) -> None:
        """Raise `StoppedError` if the run was asked to stop."""
        if self._event.is_set():
            raise StoppedError
