"""Serves every resource of the node on a socket of its own, and keeps each registered with the kubelet."""

import asyncio
import logging
import time
from collections.abc import Callable

from mcp2026.api.folder_watch import FolderWatch
from mcp2026.api.names import GPU_RESOURCE
from mcp2026.device_plugin.adapters.kubelet_client import RegistrationError, register
from mcp2026.device_plugin.adapters.node_lock import NodeLock
from mcp2026.device_plugin.adapters.plugin_server import (
    DevicePluginService,
    PluginServer,
    remove_left_sockets,
    socket_identity,
)
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.errors import (
    AnotherPluginError,
    NoKubeletSocketError,
    RegistrationRefusedError,
    SocketInUseError,
)
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.metrics import Metrics
from mcp2026.device_plugin.offers import offers
from mcp2026.device_plugin.registration import Observation, Registration, SocketIdentity, Step
from mcp2026.device_plugin.settings import Settings

log = logging.getLogger(__name__)

LOOK_S = 10.0
"""How often the sockets are looked at, although whatever happens to them is told at once."""
UNSETTLED_LOOK_S = 1.0
"""The same while nothing tells: before the first registration, with another plugin on the node, and where the
folder cannot be watched."""
LOCK_PATIENCE_S = 10.0
"""How long another plugin on the node is waited for to end: it may be the one that this one replaces."""


class _Served:
    """One resource: its service, its socket and where its registration stands."""

    def __init__(self, settings: Settings, resource: str, service: DevicePluginService) -> None:
        self.name = settings.names.outside(resource)
        self.service = service
        self.socket_name = settings.names.socket(resource)
        self.server = PluginServer(settings.plugin_directory / self.socket_name, service)
        self.registration = Registration()
        self.last_error = ""


class Registrar:
    """Registers the resource of whole GPUs at once and every other one when it is first offered.

    A resource stays registered once it was: without devices it sends an empty list, so that the kubelet
    counts none of it. `service_of` makes the service of a resource; what it is given is called when a stream
    begins or ends.
    """

    def __init__(
        self,
        settings: Settings,
        inventory: Inventory,
        metrics: Metrics,
        service_of: Callable[[str, Callable[[], None]], DevicePluginService],
    ) -> None:
        self._settings = settings
        self._inventory = inventory
        self._metrics = metrics
        self._service_of = service_of
        self._served: dict[str, _Served] = {}
        self._ever_registered = False
        self._lock = NodeLock(settings.plugin_directory)
        self._folder = FolderWatch(settings.plugin_directory)

    @property
    def why_not_ready(self) -> str:
        """What is not registered; empty when everything is."""
        if not self._ever_registered:
            return "not registered with the kubelet"
        missing = [served.name for served in self._served.values() if not served.registration.registered]
        return f"not registered with the kubelet: {', '.join(missing)}" if missing else ""

    async def run(self) -> None:
        """Serve and register until cancelled.

        Raises:
            KubeletError: no resource could be registered within the settings' time, or another plugin has
                the node or one of the sockets.

        """
        began = time.monotonic()
        patience_s = min(LOCK_PATIENCE_S, self._settings.kubelet_timeout_s)
        ours: bool | None = None
        seen: Snapshot | None = None
        following = asyncio.create_task(self._follow_inventory())
        try:
            while True:
                had, ours = ours, self._lock.take()
                if ours and not had:
                    remove_left_sockets(self._settings.plugin_directory, self._settings.names.all_sockets)
                if ours is False and time.monotonic() - began > patience_s:
                    raise AnotherPluginError(self._settings.plugin_directory)
                if self._inventory.snapshot is not seen:
                    seen = self._inventory.snapshot
                    self._add_resources(seen)
                kubelet = socket_identity(self._settings.kubelet_socket)
                for served in self._served.values() if ours else ():
                    await self._attend(served, kubelet)
                if not self._ever_registered and time.monotonic() - began > self._settings.kubelet_timeout_s:
                    self._give_up(kubelet)
                await self._folder.wait(self._until_the_next_look(bool(ours)), UNSETTLED_LOOK_S)
        finally:
            following.cancel()
            await asyncio.gather(*(served.server.stop() for served in self._served.values()))
            self._lock.release()
            self._folder.close()

    def _until_the_next_look(self, ours: bool) -> float:
        now = time.monotonic()
        longest = LOOK_S if ours and self._ever_registered else UNSETTLED_LOOK_S
        waits = (served.registration.wait_s(now, longest) for served in self._served.values())
        return min(waits, default=longest)

    async def _follow_inventory(self) -> None:
        """End the wait when there is a resource that is not served yet."""
        while True:
            snapshot = self._inventory.snapshot
            if offers(snapshot).keys() - self._served.keys():
                self._folder.wake()
            await self._inventory.next_after(snapshot)

    def _add_resources(self, snapshot: Snapshot) -> None:
        for resource in (GPU_RESOURCE, *offers(snapshot)):
            if resource not in self._served:
                self._served[resource] = _Served(
                    self._settings, resource, self._service_of(resource, self._folder.wake)
                )

    async def _attend(self, served: _Served, kubelet: SocketIdentity | None) -> None:
        observed = Observation(kubelet, served.server.socket_present, served.service.streams)
        step = served.registration.next_step(observed, time.monotonic())
        if kubelet is None or step is Step.NOTHING:
            return
        try:
            if step is Step.SERVE_AND_REGISTER:
                await served.server.start()
            await register(self._settings.kubelet_socket, served.socket_name, served.name)
        except (RegistrationError, SocketInUseError) as error:
            if isinstance(error, SocketInUseError) and not self._ever_registered:
                raise
            served.registration.failed(kubelet, time.monotonic())
            served.last_error = str(error)
            self._metrics.registrations.labels("failed").inc()
            log.warning("registering %s with the kubelet failed: %s", served.name, error)
        else:
            # A kubelet that was starting may have replaced its socket while the call waited for it.
            now = socket_identity(self._settings.kubelet_socket) or kubelet
            served.registration.succeeded(now, time.monotonic())
            self._metrics.registrations.labels("succeeded").inc()
            self._ever_registered = True
            log.info("registered %s with the kubelet", served.name)

    def _give_up(self, kubelet: SocketIdentity | None) -> None:
        if kubelet is None:
            raise NoKubeletSocketError(self._settings.kubelet_socket, self._settings.kubelet_timeout_s)
        for served in self._served.values():
            if served.last_error:
                raise RegistrationRefusedError(served.name, served.last_error)
