"""Listens to the driver's events in a thread of its own, and begins anew when that fails."""

import logging
import threading
from collections.abc import Callable

from mcp2026.device_plugin.driver import EventSource, GpuEvent
from mcp2026.device_plugin.errors import NvmlError

log = logging.getLogger(__name__)

LISTEN_S = 10.0
"""How long one wait for an event takes at most; an event ends it at once. A source that is to end does so
within it: NVML cannot be told to end a wait, and each one that ends wakes two threads."""
DEAF_PAUSE_S = 10.0
"""How long it takes until events are listened for again after that failed; the polling goes on meanwhile."""


class Ear:
    """Opens a source of events by `open_source` and hands each event to `tell`.

    The source holds the driver open, so it must be let go of when the driver went.
    """

    def __init__(self, open_source: Callable[[], EventSource], tell: Callable[[GpuEvent], None]) -> None:
        self._open_source = open_source
        self._tell = tell
        self._stopping = threading.Event()
        self._anew = threading.Event()

    def stop(self) -> None:
        """Let `listen` return soon."""
        self._stopping.set()

    def begin_anew(self) -> None:
        """Let go of the source and open another one: the driver or the GPUs are others."""
        self._anew.set()

    def listen(self) -> None:
        """Listen until `stop`; blocking."""
        while not self._stopping.is_set():
            try:
                self._listen_once()
            except NvmlError as error:
                log.warning("events of the driver cannot be heard, the GPUs are polled alone: %s", error)
                self._stopping.wait(DEAF_PAUSE_S)
            except RuntimeError:  # the event loop has ended
                return

    def _listen_once(self) -> None:
        source = self._open_source()
        self._anew.clear()
        try:
            while not (self._stopping.is_set() or self._anew.is_set()):
                for event in source.wait(LISTEN_S):
                    self._tell(event)
        finally:
            source.close()
