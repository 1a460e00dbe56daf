"""The worker processes of one server: started, listened to, told, started again when they end, and killed.

What a worker is started with and what it misses meanwhile comes from `served.py`; the changes that all make
together from `change_rounds.py`.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mcp2026.runtime.health import Health, Phase
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics
from mcp2026.runtime.process.addresses import Addresses, Listeners
from mcp2026.runtime.process.change_rounds import ChangeRounds
from mcp2026.runtime.process.client_changes import ClientChanges
from mcp2026.runtime.process.control import (
    Ask,
    Changed,
    Committed,
    Drain,
    Failed,
    Loaded,
    Prepared,
    Ready,
    Start,
    ToWorker,
    receive_from_worker,
    send,
)
from mcp2026.runtime.process.served import Missed, Served
from mcp2026.runtime.settings import Settings

log = logging.getLogger("mcp2026.runtime")

EXIT_SIGNALS = (signal.SIGTERM, signal.SIGINT)
FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 10.0
STEADY_SECONDS = 60.0
"""A worker that lived this long is not part of a row of failures."""
EXIT_GRACE = 5.0
"""Beyond the drain time, before a worker that does not end is killed, in s."""


@dataclass(eq=False)
class _Slot:
    """The place of one worker, through all its restarts."""

    index: int
    process: asyncio.subprocess.Process | None = None
    writer: asyncio.StreamWriter | None = None
    loaded: bool = False
    failures: int = 0
    reason: str = ""
    """Why its worker has to end."""


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Let a process that is started meanwhile begin with the signals blocked that only the parent may act on.

    A Ctrl-C reaches all processes of the terminal; one that still imports would end with a traceback.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, EXIT_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, EXIT_SIGNALS)


class Workers:
    """As many as the settings say, from their first start to their end."""

    def __init__(
        self,
        settings: Settings,
        health: Health,
        addresses: Addresses,
        table: int,
        metrics: RuntimeMetrics,
        served: Served,
    ) -> None:
        """Prepare to start them; `table` is the descriptor of the metrics' memory."""
        self._settings = settings
        self._health = health
        self._addresses = addresses
        self._table = table
        self._metrics = metrics
        self._served = served
        self._slots = [_Slot(index) for index in range(settings.workers)]
        self._keepers: list[asyncio.Task[None]] = []
        self._asked: set[asyncio.Task[None]] = set()
        self._changes: ChangeRounds
        self._client_changes: ClientChanges
        self.all_loaded = asyncio.Event()
        self.startup_error: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why one could not load what was to be served first."""

    def begin(self, changes: ChangeRounds, client_changes: ClientChanges) -> None:
        """Start all of them; they vote in `changes`, and have `client_changes` make what clients ask for."""
        self._changes = changes
        self._client_changes = client_changes
        # They listen before there is a worker: a client that comes early waits a moment and is not refused.
        first_listeners = [self._addresses.listeners() for _ in self._slots]
        for listeners in first_listeners:
            listeners.listen()
        self._keepers = [
            asyncio.create_task(self._keep(slot, listeners))
            for slot, listeners in zip(self._slots, first_listeners, strict=True)
        ]

    def loaded(self) -> list[int]:
        """Return the slots of the workers that have loaded everything."""
        return [slot.index for slot in self._slots if slot.loaded and slot.writer is not None]

    def tell(self, slot: int, message: ToWorker) -> None:
        """Send `message` to the worker in `slot`."""
        writer = self._slots[slot].writer
        if writer is not None:
            send(writer, message)

    def tell_all(self, message: ToWorker) -> None:
        """Send `message` to every worker."""
        for slot in self._slots:
            self.tell(slot.index, message)

    async def ended(self) -> bool:
        """Wait until all have ended after a drain; returns whether they did in time."""
        _, late = await asyncio.wait(self._keepers, timeout=self._settings.drain_seconds + EXIT_GRACE)
        if late:
            log.error("%d worker(s) did not end in time and are killed", len(late))
        return not late

    async def close(self) -> None:
        """Start none any more, kill those that are left and see them end."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        processes = [slot.process for slot in self._slots if slot.process is not None]
        for process in processes:
            if process.returncode is None:
                process.kill()
        ends = [asyncio.create_task(process.wait()) for process in processes]
        if ends:  # a loop that closes before they are seen to end warns of each
            await asyncio.wait(ends, timeout=EXIT_GRACE)

    async def _keep(self, slot: _Slot, listeners: Listeners | None) -> None:
        """Run one worker after another in `slot`, until the server ends."""
        while self._health.phase in (Phase.LOADING, Phase.SERVING):
            started = time.monotonic()
            first = self._health.phase is Phase.LOADING
            try:
                reason = await self._run_worker(slot, listeners or self._addresses.listeners())
            except OSError as error:
                reason = f"a worker could not be started: {error.strerror}. Raise the limit (ulimit -a)"
            listeners = None
            self._metrics.reset_gauges(slot.index)
            if self._health.leaving:
                return
            if first and not slot.loaded:
                if not self.startup_error.done():
                    self.startup_error.set_result(reason or "a worker ended while it loaded the model")
                return
            slot.loaded = False
            slot.failures = 1 if time.monotonic() - started >= STEADY_SECONDS else slot.failures + 1
            delay = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(slot.failures - 1, 16))
            log.error("worker %d: %s; a new one starts in %.1f s", slot.index, reason, delay)
            self._metrics.worker_restarted()
            await asyncio.sleep(delay)

    async def _run_worker(self, slot: _Slot, listeners: Listeners) -> str:
        """Start a worker, listen to it until it ends, and return why it ended."""
        ours, theirs = socket.socketpair()
        inherited = [one.fileno() for one in (theirs, *listeners.all)]
        command = [sys.executable, "-P", "-m", "mcp2026.runtime.process.starting"]
        with _signals_blocked():
            slot.process = process = await asyncio.create_subprocess_exec(
                *command,
                *(str(theirs.fileno()), str(os.getpid())),
                pass_fds=[*inherited, self._table],
                stdin=asyncio.subprocess.DEVNULL,
            )
        missed = self._served.watch()
        start = Start(
            self._settings,
            slot.index,
            tuple(self._served.models.values()),
            tuple(self._served.regions.values()),
            [one.fileno() for one in listeners.http],
            [one.fileno() for one in listeners.grpc],
            self._table,
            listen_first=self._health.phase is Phase.LOADING,
        )
        for one in (theirs, *listeners.all):
            one.close()
        ours.setblocking(False)
        reader, slot.writer = await asyncio.open_connection(sock=ours)
        send(slot.writer, start)
        if self._health.phase is Phase.DRAINING:
            send(slot.writer, Drain())  # the others were told while this one was being started
        slot.reason = ""
        joining: asyncio.Task[None] | None = None
        while (message := await receive_from_worker(reader)) is not None:
            match message:
                case Loaded() if not slot.reason:  # one that was given up may say so before it ends
                    joining = asyncio.create_task(self._join(slot, missed))
                case Failed(model, text):
                    if model not in missed.models:  # else it is served no more, or by another configuration
                        self._give_up(slot, text)
                case Ask():
                    task = asyncio.create_task(self._change(slot, message))
                    self._asked.add(task)
                    task.add_done_callback(self._asked.discard)
                case Prepared() | Committed():
                    self._changes.voted(slot.index, message)
        writer, slot.writer = slot.writer, None  # no change that begins from now on waits for this worker
        self._changes.ended(slot.index)
        self._served.forget(missed)
        if joining is not None:
            joining.cancel()
        writer.close()
        status = await process.wait()
        slot.process = None
        if slot.reason:
            return slot.reason
        if status < 0:
            return f"worker process {process.pid} was ended by {signal.Signals(-status).name}"
        return f"worker process {process.pid} ended with status {status}"

    def _give_up(self, slot: _Slot, reason: str) -> None:
        """End a worker that cannot serve what is served."""
        assert slot.process is not None
        slot.reason = slot.reason or reason
        if slot.process.returncode is None:
            slot.process.kill()

    async def _join(self, slot: _Slot, missed: Missed) -> None:
        """Let a worker that has loaded what was served at its start take part in all that comes."""
        problem = await self._changes.join(slot.index, missed, lambda: self._joined(slot))
        if problem is not None:
            self._give_up(slot, problem.message)

    def _joined(self, slot: _Slot) -> None:
        slot.loaded = True
        if self._health.phase in (Phase.SERVING, Phase.LAME_DUCK):
            assert slot.writer is not None
            send(slot.writer, Ready())
            log.info("worker %d serves again", slot.index)
        elif all(one.loaded for one in self._slots):
            self.all_loaded.set()

    async def _change(self, slot: _Slot, ask: Ask) -> None:
        """Make the change that a worker asks for, and tell the outcome to it and to no successor."""
        asked_by = slot.writer
        outcome = await self._client_changes.make(ask.change)
        if asked_by is not None and slot.writer is asked_by:
            send(asked_by, Changed(ask.request_id, outcome.problem, outcome.revision))
