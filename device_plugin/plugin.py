"""The running plugin: four loops around one inventory, until it is told to stop.

Registration keeps the kubelet connected; the health probe updates the inventory; the publisher writes the
topology when it changes; the probe endpoint tells whether all this works.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from mcp2026.api.gpu_topology import GPUTopologyStatus, Holder
from mcp2026.device_plugin.adapters.kubelet_client import RegistrationError, gpu_holders, register
from mcp2026.device_plugin.adapters.plugin_server import DevicePluginService, PluginServer, socket_identity
from mcp2026.device_plugin.adapters.probe_endpoint import ProbeEndpoint
from mcp2026.device_plugin.background import blocking_call
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.errors import (
    KubeletError,
    NoKubeletSocketError,
    PublicationError,
    RegistrationRefusedError,
    SocketInUseError,
)
from mcp2026.device_plugin.health import HealthProbe, report_changes
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.metrics import Metrics
from mcp2026.device_plugin.registration import Observation, Registration, Step
from mcp2026.device_plugin.settings import Settings
from mcp2026.device_plugin.topology_status import topology_status

log = logging.getLogger(__name__)

WATCH_INTERVAL_S = 0.25
"""How often the sockets are looked at: a kubelet that started anew is found within it."""
LONGEST_PROBE_S = 30.0
"""A probe that takes longer hangs in the driver; the plugin is then not ready."""
REWRITE_INTERVAL_S = 300.0
"""An unchanged topology is written again after this time, in case that someone changed or deleted it."""
FIRST_BACKOFF_S, LAST_BACKOFF_S = 1.0, 60.0


class Plugin:
    """One plugin. `run` ends by cancellation, or by an error that a restart must mend."""

    def __init__(
        self,
        settings: Settings,
        snapshot: Snapshot,
        probe: HealthProbe,
        write_topology: Callable[[GPUTopologyStatus], None] | None,
    ) -> None:
        self._settings = settings
        self._probe = probe
        self._write_topology = write_topology
        self._inventory = Inventory(snapshot)
        self._metrics = Metrics()
        self._metrics.observe(snapshot)
        self._service = DevicePluginService(self._inventory, self._metrics, settings.pass_device_nodes)
        self._server = PluginServer(settings.plugin_socket, self._service)
        self._registration = Registration()
        self._probe_began: float | None = None
        self._holders_failure = ""

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            KubeletError: the kubelet could not be reached, or refused, within the settings' time.

        """
        endpoint = None
        try:
            if self._settings.metrics_port is not None:
                endpoint = ProbeEndpoint(self._settings.metrics_port, self._metrics, self.why_not_ready)
                await endpoint.start()
            async with asyncio.TaskGroup() as loops:
                loops.create_task(self._keep_registered())
                loops.create_task(self._watch_health())
                if self._write_topology is not None:
                    loops.create_task(self._keep_published(self._write_topology))
        except ExceptionGroup as group:
            failure = group.exceptions[0]
            if isinstance(failure, KubeletError):
                raise failure from None
            raise
        finally:
            await self._server.stop()
            if endpoint is not None:
                await endpoint.stop()

    def why_not_ready(self) -> str:
        """Return what keeps the plugin from its work; an empty text when nothing does."""
        if not self._registration.registered:
            return "not registered with the kubelet"
        if self._probe_began is not None and time.monotonic() - self._probe_began > LONGEST_PROBE_S:
            return "the NVIDIA driver does not answer the health probe"
        failure = self._inventory.snapshot.driver_failure
        return f"the NVIDIA driver fails: {failure}" if failure else ""

    # ---- the kubelet ----

    async def _keep_registered(self) -> None:
        began = time.monotonic()
        last_error = ""
        ever_registered = False
        while True:
            now = time.monotonic()
            kubelet = socket_identity(self._settings.kubelet_socket)
            observed = Observation(kubelet, self._server.socket_present, self._service.streams)
            step = self._registration.next_step(observed, now)
            if kubelet is not None and step is not Step.NOTHING:
                try:
                    if step is Step.SERVE_AND_REGISTER:
                        await self._server.start()
                    await register(
                        self._settings.kubelet_socket,
                        self._settings.socket_name,
                        self._settings.resource_name,
                    )
                except (RegistrationError, SocketInUseError) as error:
                    if isinstance(error, SocketInUseError) and not ever_registered:
                        raise
                    self._registration.failed(kubelet, time.monotonic())
                    self._metrics.registrations.labels("failed").inc()
                    last_error = str(error)
                    log.warning("registering with the kubelet failed: %s", error)
                else:
                    self._registration.succeeded(kubelet, time.monotonic())
                    self._metrics.registrations.labels("succeeded").inc()
                    ever_registered = True
                    log.info("registered %s with the kubelet", self._settings.resource_name)
            if not ever_registered and now - began > self._settings.kubelet_timeout_s:
                if kubelet is None:
                    raise NoKubeletSocketError(
                        self._settings.kubelet_socket, self._settings.kubelet_timeout_s
                    )
                raise RegistrationRefusedError(self._settings.resource_name, last_error)
            await asyncio.sleep(WATCH_INTERVAL_S)

    # ---- health ----

    async def _watch_health(self) -> None:
        while True:
            await asyncio.sleep(self._settings.health_interval_s)
            before = self._inventory.snapshot
            self._probe_began = time.monotonic()
            after = await blocking_call(partial(self._probe.probe, before))
            self._probe_began = None
            report_changes(before, after)
            self._metrics.observe(after)
            self._inventory.update(after)

    # ---- the API server ----

    async def _keep_published(self, write: Callable[[GPUTopologyStatus], None]) -> None:
        written: GPUTopologyStatus | None = None
        written_at = 0.0
        backoff_s = FIRST_BACKOFF_S
        while True:
            snapshot = self._inventory.snapshot
            status = topology_status(snapshot.machine, snapshot.unhealthy, await self._holders(snapshot))
            wait_s = self._settings.holders_interval_s
            if status != written or time.monotonic() - written_at > REWRITE_INTERVAL_S:
                try:
                    await blocking_call(partial(write, status))
                except PublicationError as error:
                    self._metrics.publications.labels("failed").inc()
                    log.warning("writing the topology failed, again in %g s: %s", backoff_s, error)
                    await asyncio.sleep(backoff_s)
                    backoff_s = min(2 * backoff_s, LAST_BACKOFF_S)
                    continue
                self._metrics.publications.labels("succeeded").inc()
                written, written_at, backoff_s = status, time.monotonic(), FIRST_BACKOFF_S
                log.info("wrote the topology of %s", self._settings.node_name)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._inventory.next_after(snapshot), wait_s)

    async def _holders(self, snapshot: Snapshot) -> dict[str, Holder]:
        failure = ""
        holders: dict[str, Holder] = {}
        try:
            holders = await gpu_holders(self._settings.pod_resources_socket, snapshot.positions)
        except KubeletError as error:
            failure = str(error)
        if failure and failure != self._holders_failure:
            log.warning("who holds which GPU is not known: %s", failure)
        self._holders_failure = failure
        return holders
