"""The parent: holds the addresses, and takes the server and its workers through their phases, in order.

It serves nothing itself, so it loads no model and stays small; only the optional metrics port is its own.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
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
from mcp2026.runtime.process.addresses import Addresses, take_addresses, url_host
from mcp2026.runtime.process.change_rounds import ChangeRounds
from mcp2026.runtime.process.client_changes import ClientChanges
from mcp2026.runtime.process.control import (
    Drain,
    LameDuck,
    Ready,
)
from mcp2026.runtime.process.served import Served
from mcp2026.runtime.process.sockets import BACKLOG, PortReservation
from mcp2026.runtime.process.workers import EXIT_SIGNALS, Workers
from mcp2026.runtime.protocol.connections import ConnectionLimits, Connections
from mcp2026.runtime.protocol.listener import connection_factory
from mcp2026.runtime.protocol.observability import Observability
from mcp2026.runtime.repository_watch.watching import watch_of
from mcp2026.runtime.revisions.assembly import follow_revisions
from mcp2026.runtime.settings import Settings, with_threads

log = logging.getLogger("mcp2026.runtime")

SAME_SIGNAL_SECONDS = 0.2
"""A signal that comes again so soon is the same one: `timeout` sends it to the program and to its group."""


class Supervisor:
    """One server, from start to exit."""

    def __init__(self, settings: Settings, stopping: Callable[[int], None] = lambda _revision: None) -> None:
        """Make ready to serve; `stopping` is called with the revision that says stopped, before the drain."""
        threads = settings.threads or max(1, usable_cpus() // settings.workers)
        self._settings = with_threads(settings, threads)
        self._health = Health()
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self._served = Served()
        self._fetcher = Fetcher(self._settings, lambda: self._served.models.values())
        self._workers: Workers
        self._changes: ChangeRounds
        self._addresses: Addresses
        self._metrics_url: dict[str, str] = {}
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
        table = create_shared_memory(block_sizes(settings.workers))
        self._metrics = RuntimeMetrics(table, settings.workers, settings.workers)
        self._metrics.claim("", (), 0)
        for model in models:
            self._claim(model)
            self._served.models[model.model] = model
        acceptors = self._listen_for_metrics()
        self._workers = Workers(settings, self._health, self._addresses, table, self._metrics, self._served)
        self._changes = ChangeRounds(
            self._served,
            self._workers,
            self._read_model,
            self._claim,
            self._retire,
            settings.load_timeout,
        )
        self._workers.begin(self._changes, ClientChanges(settings, self._changes, self._served))
        log.info(
            "loading %s in %d worker(s) with %d compute thread(s) each",
            self._named_models(),
            settings.workers,
            settings.threads,
            extra={"listening": self._addresses.http.port},
        )
        try:
            return await self._serve()
        finally:
            await self._workers.close()
            for acceptor in acceptors:
                acceptor.close()
            self._addresses.close()
            os.close(table)

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

    async def _serve(self) -> int:
        signalled = asyncio.create_task(self._signals.get())
        loaded = asyncio.create_task(self._workers.all_loaded.wait())
        first: set[asyncio.Future[Any]] = {signalled, loaded, self._workers.startup_error}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if self._workers.startup_error.done():
            raise StartupError(self._workers.startup_error.result())
        if not signalled.done():
            await self._follow_until(signalled)
        loaded.cancel()
        log.info("%s: exit begins", signalled.result().name)
        ending = asyncio.create_task(self._end())
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
        self._workers.tell_all(Ready())
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

    async def _end(self) -> int:
        """Unready at once, serve on for the lame-duck time, then drain; returns the exit status."""
        self._health.advance(Phase.LAME_DUCK)
        self._workers.tell_all(LameDuck())
        await asyncio.sleep(self._settings.lame_duck_seconds)
        self._health.advance(Phase.DRAINING)
        self._workers.tell_all(Drain())
        in_time = await self._workers.ended()
        if self.stopped_by is not None:
            self.drained = answered(self._metrics.exposition()) - self._answered_before
        return 0 if in_time else 1

    # --- changes

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
