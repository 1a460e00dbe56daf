"""Keeps a key set fresh in a thread of its own: requests only look at what is there."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.sla_token import KeySet, parse_key_set
from mcp2026.runtime.context.key_schedule import KeySchedule
from mcp2026.runtime.context.key_source import KeySource, KeySourceError

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0


class KeyKeeper:
    """The last good set. It is replaced whole, so whoever has it may go on using it."""

    def __init__(self, source: KeySource, failed: Callable[[], None]) -> None:
        """Read the set from `source`; `failed` is called in the thread when that does not work."""
        self._source = source
        self._failed = failed
        self._schedule = KeySchedule()
        self._said = ""
        self._changed = threading.Event()
        self._read_once = threading.Event()
        self._closing = False
        self._hinted = False
        self.keys: KeySet = {}
        self._thread = threading.Thread(target=self._run, name="sla-keys", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until the first read is over, however it ended, but no longer than `seconds`."""
        self._read_once.wait(seconds)

    def wanted(self) -> None:
        """Look again soon: a token names a key that is not there. May be called as often as one likes."""
        if not self._source.polled and not self._hinted:
            self._hinted = True  # until the next read: a flood of such tokens wakes the thread once
            self._changed.set()

    def close(self) -> None:
        """End the thread; a fetch that is under way is not waited for."""
        self._closing = True
        self._changed.set()

    def _run(self) -> None:
        while not self._closing:
            if self._source.polled or time.monotonic() >= self._schedule.due:
                self._read()
                self._read_once.set()
            wait = POLL_SECONDS if self._source.polled else self._schedule.due - time.monotonic()
            if self._changed.wait(max(0.0, wait)) and not self._closing:
                self._changed.clear()
                self._schedule.wanted()

    def _read(self) -> None:
        self._hinted = False
        try:
            read = self._source.read()
            if read.document is not None:
                self.keys = parse_key_set(read.document)
                self._source.accepted()
                log.info("%d key(s) for SLA tokens", len(self.keys), extra={"key_ids": sorted(self.keys)})
        except (KeySourceError, InvalidResourceError) as error:
            self._schedule.failed(time.monotonic())
            self._failed()
            self._say(f"the keys for SLA tokens cannot be read, {len(self.keys)} known stay: {error}")
        else:
            self._schedule.succeeded(time.monotonic(), read.cache_control)
            self._said = ""

    def _say(self, text: str) -> None:
        """Log a failure once, not every time that it repeats itself."""
        if text != self._said:
            self._said = text
            log.warning("%s", text)
