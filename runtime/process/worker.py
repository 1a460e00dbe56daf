"""A worker process: one event loop for connections, one engine for the model.

Begun by `starting.py` with the descriptor of its control socket. It does what the parent says over that
descriptor and ends when the parent does.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

import uvloop

from mcp2026.api.errors import SettingsError
from mcp2026.api.serving import ServingConfig
from mcp2026.api.structured_log import configure_logging
from mcp2026.api.time_slices import SHORTEST_NS, ask_for_slices
from mcp2026.runtime.context.assembly import Contexts
from mcp2026.runtime.errors import RequestError, StartupError
from mcp2026.runtime.execution.background_share import BackgroundShare
from mcp2026.runtime.health import Health, Phase
from mcp2026.runtime.inference import InferenceService
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics
from mcp2026.runtime.model.freed_memory import give_back_freed_memory
from mcp2026.runtime.model.loaded import LoadedVersion, ServedModel
from mcp2026.runtime.model.loading import load_model
from mcp2026.runtime.model.loading_thread import LoadingThread
from mcp2026.runtime.model.sources import repository_names
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.negotiation.connection import Negotiation
from mcp2026.runtime.negotiation.document import batching_document
from mcp2026.runtime.process.accepting import Acceptor, AcceptPauses
from mcp2026.runtime.process.change_steps import ChangeSteps
from mcp2026.runtime.process.control import (
    Changed,
    Commit,
    Discard,
    Drain,
    Failed,
    LameDuck,
    Loaded,
    Prepare,
    Ready,
    Start,
    receive_from_parent,
    send,
)
from mcp2026.runtime.process.sockets import BACKLOG
from mcp2026.runtime.protocol.batched_paths import BatchedPaths
from mcp2026.runtime.protocol.connections import ConnectionLimits, Connections
from mcp2026.runtime.protocol.grpc.health import SERVICE as HEALTH
from mcp2026.runtime.protocol.grpc.health import HealthService
from mcp2026.runtime.protocol.grpc.reflection.service import SERVICES as REFLECTION
from mcp2026.runtime.protocol.grpc.reflection.service import ReflectionService
from mcp2026.runtime.protocol.grpc.router import GrpcRouter
from mcp2026.runtime.protocol.http_site import HttpSite
from mcp2026.runtime.protocol.listener import connection_factory, grpc_connection_factory
from mcp2026.runtime.protocol.native.control_api import ControlApi
from mcp2026.runtime.protocol.native.control_http import ControlHttp
from mcp2026.runtime.protocol.native.grpc_service import NativeService
from mcp2026.runtime.protocol.native.infer_method import InferMethod
from mcp2026.runtime.protocol.open_inference.administration import Administration
from mcp2026.runtime.protocol.open_inference.grpc_service import SERVICE, OpenInferenceService
from mcp2026.runtime.protocol.open_inference.http_api import OpenInferenceApi
from mcp2026.runtime.protocol.open_inference.paths import PATHS
from mcp2026.runtime.protocol.open_inference.requests import Limits
from mcp2026.runtime.protocol.rest import RestApi
from mcp2026.runtime.protocol.service_files import service_files
from mcp2026.runtime.settings import KIB, MIB
from mcp2026.runtime.shared_memory.regions import SharedMemoryRegions

log = logging.getLogger(__name__)

OPEN_INFERENCE = SERVICE.strip("/")

COLLECTOR_THRESHOLD = 50_000
"""Objects made more than freed before Python looks for cycles. Requests make none, but at the usual 700 it
looks through those in flight at every batch."""
IN_FLIGHT_GRACE = 0.05
"""After the listeners are closed: time for bytes that clients have sent already, in s."""
ABORT_SECONDS = 1.0
"""After the drain time: how long the last error answers may take to leave, in s."""


class Worker:
    """Wires one worker together and takes it through its phases."""

    def __init__(self, start: Start, writer: asyncio.StreamWriter) -> None:
        settings = start.settings
        self._start = start
        self._settings = settings
        self._writer = writer
        self._loop = loop = asyncio.get_running_loop()
        self._metrics = metrics = RuntimeMetrics(start.metrics, settings.workers, start.slot)
        metrics.reset_gauges()
        self._health = Health()
        self._store = ModelStore(lambda: repository_names(settings))
        self._regions = SharedMemoryRegions()
        max_timeout_ns = int(settings.request_timeout * 1e9)
        self._contexts = Contexts(settings, metrics)
        observer = self._contexts.observer
        share = BackgroundShare()
        self._service = InferenceService(
            settings.queue_size,
            settings.queue_mib * MIB,
            metrics,
            loop,
            max_timeout_ns,
            observer,
            settings.workers,
            share,
        )
        self._loading = LoadingThread()
        self._quiet = LoadingThread(share)
        self._steps = ChangeSteps(
            self._load_model, self._store, self._service, self._regions, lambda said: send(writer, said)
        )
        administration = Administration(
            self._store,
            metrics,
            self._regions,
            self._steps.request,
            shared_memory=settings.shared_memory,
        )
        most = max(settings.queue_mib * MIB, settings.max_body_bytes)
        self._limits = ConnectionLimits(
            max_body_bytes=settings.max_body_bytes,
            max_head_bytes=settings.max_header_kib * KIB,
            max_headers=settings.max_headers,
            unfinished_bytes=most,
            unsent_bytes=most,
            inflated_bytes=most,
        )
        self._connections = Connections(loop, metrics.connections, self._limits, self._give_back)
        limits = Limits(max_timeout_ns, settings.max_body_bytes, self._connections.room)
        before = (self._health, metrics, self._service, self._store, self._regions)
        shared = (*before, administration, limits, observer)
        api = ControlApi(
            self._health, self._store, self._steps.request_versions, {"getBatching": self._batching_document}
        )
        control = ControlHttp(api, metrics)
        rest = RestApi(
            self._health,
            metrics,
            self._store,
            self._service,
            max_timeout_ns,
            observer,
            paths_beside=(*control.paths, *PATHS),
        )
        self._site = HttpSite(rest, OpenInferenceApi(*shared), control)
        infer = InferMethod(metrics, self._store, self._service, max_timeout_ns, observer)
        native = NativeService(self._health, metrics, api, infer)
        services = [OPEN_INFERENCE, *native.names]
        self._grpc = GrpcRouter(
            {
                OPEN_INFERENCE: OpenInferenceService(*shared),
                **dict.fromkeys(native.names, native),
                HEALTH: HealthService(self._health, [*services, *REFLECTION]),
                **dict.fromkeys(REFLECTION, ReflectionService(self._health, services, service_files)),
            }
        )
        self._negotiation = (
            None
            if settings.offer is None
            else Negotiation(settings.offer, BatchedPaths(), metrics.negotiation)
        )
        self._pauses = AcceptPauses()
        self._acceptors: list[Acceptor] = []

    async def run(self, reader: asyncio.StreamReader) -> int:
        """Serve until the parent says to stop, and return the exit status."""
        if self._start.listen_first:
            self._listen()
        loading = self._loop.create_task(self._load())
        try:
            while True:
                message = await receive_from_parent(reader)
                match message:
                    case Ready():
                        if not self._acceptors:
                            # Not before: the parent ends a worker that has loaded what is served no more.
                            self._listen()
                        self._health.advance(Phase.SERVING)
                        self._metrics.worker_ready(ready=self._health.ready)
                    case LameDuck():
                        self._health.advance(Phase.LAME_DUCK)
                        self._metrics.worker_ready(ready=False)
                    case Prepare() | Commit() | Discard() | Changed():
                        self._steps.follow(message)
                    case Drain() | None:
                        break
        finally:
            self._metrics.worker_ready(ready=False)
        if not loading.done():
            os._exit(0)  # nothing was served yet, and a load cannot be stopped half-way
        loading.result()
        await self._drain()
        await self._loop.run_in_executor(None, self._contexts.close)
        return 0

    def _give_back(self) -> None:
        self._loop.run_in_executor(None, give_back_freed_memory)

    def _batching_document(self) -> dict[str, Any]:
        negotiation, metrics = self._negotiation, self._metrics
        return batching_document(
            None if negotiation is None else negotiation.offer,
            metrics.carriers(),
            metrics.batches(),
            self._start.slot,
            None if negotiation is None else negotiation.sessions,
        )

    async def _load_model(
        self, config: ServingConfig, live: tuple[LoadedVersion, ...] = (), may_differ: bool = False
    ) -> ServedModel:
        settings = self._settings
        threads = settings.threads or 1
        load = partial(
            load_model,
            config,
            threads,
            settings.provider,
            self._metrics.version,
            {version.version_id: version for version in live},
            may_differ=may_differ,
            warm_up_seconds=settings.warm_up_seconds,
        )
        # Compute threads that belong to a session would stay as quiet as the thread that opened it.
        quiet = self._health.phase is not Phase.LOADING and threads == 1
        return await (self._quiet if quiet else self._loading).run(load)

    async def _load(self) -> None:
        self._store.expect(config.model for config in self._start.models)
        for config in self._start.models:
            try:
                model = await self._load_model(config)
            except (SettingsError, StartupError) as error:
                send(self._writer, Failed(config.model, str(error)))
            except Exception as error:
                log.exception("loading failed")
                send(self._writer, Failed(config.model, f"cannot load the model: {error}"))
            else:
                self._store.put(model)
                self._service.serve(model)
        await self._loop.run_in_executor(None, self._contexts.ready)
        gc.collect()
        gc.freeze()  # what is here stays, and need not be looked through again
        gc.set_threshold(COLLECTOR_THRESHOLD)
        for region in self._start.regions:
            with suppress(RequestError):  # its owner may have removed it since
                self._regions.register(region.name, region.key, region.offset, region.byte_size)
        send(self._writer, Loaded())

    def _listen(self) -> None:
        watched = (self._limits, self._connections, self._loop)
        negotiated = (self._negotiation, self._settings.http2_limits)
        http = connection_factory(self._site, *watched, None, *negotiated)
        for descriptor in self._start.http:
            self._accept(http, descriptor)
        grpc = grpc_connection_factory(self._grpc, *watched, *negotiated)
        for descriptor in self._start.grpc:
            self._accept(grpc, descriptor)

    def _accept(self, factory: Callable[[], asyncio.Protocol], descriptor: int) -> None:
        listener = socket.socket(fileno=descriptor)
        listener.listen(BACKLOG)
        waits = self._metrics.connection_waits
        self._acceptors.append(Acceptor(self._loop, listener, factory, self._pauses, waits))

    async def _drain(self) -> None:
        """Take nothing new, answer everything that was taken, and say so to whoever waits too long."""
        self._health.advance(Phase.DRAINING)
        self._service.drain()
        if self._negotiation is not None:
            self._negotiation.change(None)
        for acceptor in self._acceptors:
            acceptor.close()
        await asyncio.sleep(IN_FLIGHT_GRACE)
        self._connections.drain()
        try:
            await asyncio.wait_for(self._connections.empty.wait(), self._settings.drain_seconds)
        except TimeoutError:
            log.warning(
                "worker %d: %d connections were not done in time", self._start.slot, len(self._connections)
            )
            self._service.abandon()
            try:
                await asyncio.wait_for(self._connections.empty.wait(), ABORT_SECONDS)
            except TimeoutError:
                return
        try:
            await asyncio.wait_for(self._loop.run_in_executor(None, self._service.close), ABORT_SECONDS)
        except TimeoutError:
            return  # it computes for callers that have left


async def _run(control: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=control, limit=MIB)
    start = await receive_from_parent(reader)
    if not isinstance(start, Start):
        return
    configure_logging(start.settings.log_format, start.settings.log_level)
    _leave(await Worker(start, writer).run(reader))


def _leave(status: int) -> NoReturn:
    """End the process, whatever its threads do.

    A model that is being loaded would hold up the end of the event loop, and a thread inside ONNX Runtime
    must not meet an interpreter that is being taken down.
    """
    logging.shutdown()
    os._exit(status)


def run(descriptor: int) -> None:
    """Run a worker on the control socket with this descriptor."""
    # Signals of a terminal or a process group reach every process; only the parent decides what they mean.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ask_for_slices(SHORTEST_NS)
    with socket.socket(fileno=descriptor) as control:
        control.setblocking(False)
        uvloop.run(_run(control))
