"""The parent: holds the port, starts the workers, restarts one that dies, and ends them all in order.

It serves nothing itself, so it loads no model and stays small; only the optional metrics port is its own.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mcp2026.api.serving import ServingConfig
from mcp2026.api.sources import is_remote
from mcp2026.runtime.ending.counting import answered
from mcp2026.runtime.errors import ErrorCode, RequestError, StartupError
from mcp2026.runtime.execution.cpu_quota import usable_cpus
from mcp2026.runtime.fetching.fetching import Fetcher
from mcp2026.runtime.health import Health, Phase
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics, block_sizes
from mcp2026.runtime.metrics.shared_blocks import CAPACITY, NoBlockLeftError, create_shared_memory
from mcp2026.runtime.model.sessions import values_of
from mcp2026.runtime.model.sources import initial_models, model_to_load
from mcp2026.runtime.process.accepting import Acceptor, AcceptPauses
from mcp2026.runtime.process.addresses import Addresses, Listeners, take_addresses, url_host
from mcp2026.runtime.process.change_rounds import ChangeRounds
from mcp2026.runtime.process.client_changes import ClientChanges
from mcp2026.runtime.process.control import (
    Ask,
    Changed,
    Committed,
    Drain,
    Failed,
    LameDuck,
    Loaded,
    Prepared,
    Ready,
    Start,
    ToWorker,
    receive_from_worker,
    send,
)
from mcp2026.runtime.process.served import Missed, Served
from mcp2026.runtime.process.sockets import BACKLOG, PortReservation
from mcp2026.runtime.protocol.connections import ConnectionLimits, Connections
from mcp2026.runtime.protocol.listener import connection_factory
from mcp2026.runtime.protocol.observability import Observability
from mcp2026.runtime.repository_watch.watching import watch_of
from mcp2026.runtime.revisions.assembly import follow_revisions
from mcp2026.runtime.settings import Settings, with_threads

log = logging.getLogger("mcp2026.runtime")

EXIT_SIGNALS = (signal.SIGTERM, signal.SIGINT)
FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 10.0
STEADY_SECONDS = 60.0
"""A worker that lived this long is not part of a row of failures."""
SAME_SIGNAL_SECONDS = 0.2
"""A signal that comes again so soon is the same one: `timeout` sends it to the program and to its group."""
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


class Supervisor:
    """One server, from start to exit."""

    def __init__(self, settings: Settings, stopping: Callable[[int], None] = lambda _revision: None) -> None:
        """Make ready to serve; `stopping` is called with the revision that says stopped, before the drain."""
        threads = settings.threads or max(1, usable_cpus() // settings.workers)
        self._settings = with_threads(settings, threads)
        self._slots = [_Slot(index) for index in range(settings.workers)]
        self._health = Health()
        self._all_loaded = asyncio.Event()
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self._startup_error: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._served = Served()
        self._changes = ChangeRounds(self._served, self, self._read_model, self._claim, self._retire)
        self._client_changes = ClientChanges(self._settings, self._changes, self._served)
        self._fetcher = Fetcher(self._settings, lambda: self._served.models.values())
        self._asked: set[asyncio.Task[None]] = set()
        self._addresses: Addresses
        self._metrics_url: dict[str, str] = {}
        self._table: int
        self._metrics: RuntimeMetrics
        self._stopping = stopping
        self._answered_before = 0
        self.stopped_by: int | None = None
        """Revision that said that the model is stopped, if one did."""
        self.drained = 0
        """Requests that were answered after it."""

    async def run(self) -> int:
        """Serve until a signal, and return the exit status.

        Raises:
            StartupError: the server could not start; nothing of it is left.

        """
        settings = self._settings
        loop = asyncio.get_running_loop()
        for number in EXIT_SIGNALS:
            loop.add_signal_handler(number, self._signals.put_nowait, number)
        models = await self._brought(initial_models(settings))
        if models is None:
            return 0
        for version in (version for model in models for version in model.versions):
            values_of(version.path)
        self._addresses = await take_addresses(settings)
        self._table = create_shared_memory(block_sizes(settings.workers))
        self._metrics = RuntimeMetrics(self._table, settings.workers, settings.workers)
        self._metrics.claim("", (), 0)
        for model in models:
            self._claim(model)
            self._served.models[model.model] = model
        acceptors = self._listen_for_metrics()
        # They listen before there is a worker: a client that comes early waits a moment and is not refused.
        first_listeners = [self._addresses.listeners() for _ in self._slots]
        for listeners in first_listeners:
            listeners.listen()
        log.info(
            "loading %s in %d worker(s) with %d compute thread(s) each",
            self._named_models(),
            settings.workers,
            settings.threads,
            extra={"listening": self._addresses.http.port},
        )
        keepers = [
            asyncio.create_task(self._keep(slot, listeners))
            for slot, listeners in zip(self._slots, first_listeners, strict=True)
        ]
        try:
            return await self._serve(keepers)
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)
            await self._kill_all()
            for acceptor in acceptors:
                acceptor.close()
            self._addresses.close()
            os.close(self._table)

    async def _brought(self, models: tuple[ServingConfig, ...]) -> tuple[ServingConfig, ...] | None:
        """Return `models` with files of this machine; None: a signal came before they were there.

        Raises:
            FetchError: one cannot be had.

        """
        if not any(is_remote(version.path) for model in models for version in model.versions):
            return models
        (model,) = models  # a repository has only files
        bringing = asyncio.create_task(self._fetcher.local(model))
        signalled = asyncio.create_task(self._signals.get())
        either: set[asyncio.Future[Any]] = {bringing, signalled}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if signalled.done():
            log.info("%s: exit before the model was here", signalled.result().name)
            bringing.cancel()
            return None
        signalled.cancel()
        return (bringing.result(),)

    async def _serve(self, keepers: list[asyncio.Task[None]]) -> int:
        signalled = asyncio.create_task(self._signals.get())
        loaded = asyncio.create_task(self._all_loaded.wait())
        first: set[asyncio.Future[Any]] = {signalled, loaded, self._startup_error}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if self._startup_error.done():
            raise StartupError(self._startup_error.result())
        if not signalled.done():
            await self._follow_until(signalled)
        loaded.cancel()
        log.info("%s: exit begins", signalled.result().name)
        ending = asyncio.create_task(self._end(keepers))
        second = asyncio.create_task(self._second_signal())
        either: set[asyncio.Future[Any]] = {ending, second}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            ending.cancel()
            log.warning("%s again: exit at once", second.result().name)
            return 128 + second.result()
        second.cancel()
        return ending.result()

    async def _follow_until(self, signalled: asyncio.Task[signal.Signals]) -> None:
        """Become ready, and serve what comes anew where there is something to follow.

        Raises:
            StartupError: it cannot be followed.

        """
        following = asyncio.create_task(self._follow())
        either: set[asyncio.Future[Any]] = {signalled, following}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not signalled.done():
            following.result()  # an error, or there is nothing to follow
            await signalled
        following.cancel()

    async def _follow(self) -> None:
        settings = self._settings
        if settings.model_control == "poll":
            watch = watch_of(settings, self._changes)
            await watch.load_all()
            self._become_ready()
            await watch.run()
        self._become_ready()
        if settings.serving_config is not None:
            (live,) = self._served.models.values()
            self._be_stopped(await follow_revisions(settings, self._changes, live, self._fetcher.local))

    def _be_stopped(self, revision: int) -> None:
        """Begin to exit, as after a signal."""
        log.info("revision %d says that the model is stopped", revision)
        self._stopping(revision)
        self._answered_before = answered(self._metrics.exposition())
        self.stopped_by = revision
        self._signals.put_nowait(signal.SIGTERM)

    async def _second_signal(self) -> signal.Signals:
        if self.stopped_by is not None:
            await self._signals.get()  # the first one was our own: from outside it has still to come
        await asyncio.sleep(SAME_SIGNAL_SECONDS)
        while not self._signals.empty():
            self._signals.get_nowait()
        return await self._signals.get()

    def _become_ready(self) -> None:
        self._health.advance(Phase.SERVING)
        self._tell_all(Ready())
        settings = self._settings
        urls = self._addresses.urls() | self._metrics_url
        log.info(
            "serving %s on %s with %d worker(s)",
            self._named_models(),
            ", ".join(urls.values()),
            settings.workers,
            extra={**urls, "pid": os.getpid()},
        )

    def _named_models(self) -> str:
        return ", ".join(self._served.models) or "no model yet"

    async def _end(self, keepers: list[asyncio.Task[None]]) -> int:
        """Unready at once, serve on for the lame-duck time, then drain; returns the exit status."""
        self._health.advance(Phase.LAME_DUCK)
        self._tell_all(LameDuck())
        await asyncio.sleep(self._settings.lame_duck_seconds)
        self._health.advance(Phase.DRAINING)
        self._tell_all(Drain())
        _, late = await asyncio.wait(keepers, timeout=self._settings.drain_seconds + EXIT_GRACE)
        if late:
            log.error("%d worker(s) did not end in time and are killed", len(late))
        if self.stopped_by is not None:
            self.drained = answered(self._metrics.exposition()) - self._answered_before
        return 1 if late else 0

    # --- workers

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
                if not self._startup_error.done():
                    self._startup_error.set_result(reason or "a worker ended while it loaded the model")
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
            self._all_loaded.set()

    # --- changes

    async def _change(self, slot: _Slot, ask: Ask) -> None:
        """Make the change that a worker asks for, and tell it the outcome."""
        outcome = await self._client_changes.make(ask.change)
        if slot.writer is not None:
            send(slot.writer, Changed(ask.request_id, outcome.problem, outcome.revision))

    def loaded(self) -> list[int]:
        """Return the slots of the workers that have loaded everything."""
        return [slot.index for slot in self._slots if slot.loaded and slot.writer is not None]

    def tell(self, slot: int, message: ToWorker) -> None:
        """Send `message` to the worker in `slot`."""
        writer = self._slots[slot].writer
        if writer is not None:
            send(writer, message)

    async def _read_model(self, name: str) -> ServingConfig:
        return await asyncio.to_thread(model_to_load, self._settings, name)

    def _claim(self, config: ServingConfig) -> None:
        version_ids = tuple(version.version_id for version in config.versions)
        try:
            self._metrics.claim(config.model, version_ids, config.revision)
        except NoBlockLeftError:
            raise RequestError(
                ErrorCode.INVALID_ARGUMENT,
                f"model: {config.model!r} would be one version too many",
                "model",
                f"at most {CAPACITY} models and versions; unload some",
            ) from None

    def _retire(self, model: str, version_ids: list[str]) -> None:
        self._metrics.retire(model, tuple(version_ids))

    def _tell_all(self, message: ToWorker) -> None:
        for slot in self._slots:
            if slot.writer is not None:
                send(slot.writer, message)

    async def _kill_all(self) -> None:
        """Kill the workers that are left and see them end: a loop that closes first is warned of each."""
        processes = [slot.process for slot in self._slots if slot.process is not None]
        for process in processes:
            if process.returncode is None:
                process.kill()
        ends = [asyncio.create_task(process.wait()) for process in processes]
        if ends:
            await asyncio.wait(ends, timeout=EXIT_GRACE)

    # --- metrics

    def _listen_for_metrics(self) -> list[Acceptor]:
        """Serve health and metrics on a port of their own, if one is asked for."""
        if self._settings.metrics_port is None:
            return []
        loop = asyncio.get_running_loop()
        reservation = PortReservation(self._settings.host, self._settings.metrics_port, "--metrics-port")
        connections = Connections(loop, lambda _count: None)
        application = Observability(self._health, self._metrics)
        factory = connection_factory(application, ConnectionLimits(), connections, loop)
        listeners = reservation.listeners()
        for one in listeners:
            one.listen(BACKLOG)
        pauses, waits = AcceptPauses(), self._metrics.connection_waits
        acceptors = [Acceptor(loop, one, factory, pauses, waits) for one in listeners]
        self._metrics_url = {
            "metrics_url": f"http://{url_host(self._settings.host)}:{reservation.port}/metrics"
        }
        reservation.close()
        return acceptors
