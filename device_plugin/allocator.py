"""Answers what the kubelet asks about devices: which to take, and what a container needs for those given.

It decides by the pure functions, over the latest snapshot, and keeps book. Neither the driver nor the API
server is asked.
"""

import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from mcp2026.device_plugin.allocation import Grant, grant
from mcp2026.device_plugin.cdi.file import SpecificationFile
from mcp2026.device_plugin.cdi.specification import specification
from mcp2026.device_plugin.device_nodes import HostNodes, parse_mig_minors
from mcp2026.device_plugin.errors import CdiDirectoryError, DevicePluginError
from mcp2026.device_plugin.holdings import Promises
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.metrics import Metrics
from mcp2026.device_plugin.offers import offers
from mcp2026.device_plugin.preference import preferred_devices
from mcp2026.device_plugin.settings import Settings
from mcp2026.device_plugin.sharing.environment import NVIDIA_VISIBLE_DEVICES
from mcp2026.device_plugin.strategy import Strategy

log = logging.getLogger(__name__)

MOST_NAMES = 8
"""Devices that a line of the log names."""
MIG_MINORS = Path("/proc/driver/nvidia-caps/mig-minors")


class Allocator:
    """One for all resources of a node."""

    def __init__(
        self, settings: Settings, inventory: Inventory, promises: Promises, metrics: Metrics
    ) -> None:
        self._settings = settings
        self._inventory = inventory
        self._promises = promises
        self._metrics = metrics
        self._cdi = SpecificationFile(settings.cdi_directory)
        self._by_cdi = Strategy.CDI_CRI in settings.strategies

    def prefer(
        self, resource: str, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> list[str]:
        """Return the best devices to take. Never raises: an error would fail the pod's admission."""
        try:
            preference = preferred_devices(self._inventory.snapshot, resource, available, must_include, size)
        except Exception:
            log.exception("no preference could be worked out: the first devices are preferred")
            self._metrics.preferences.labels("fallback").inc()
            return list(dict.fromkeys([*must_include, *available]))[: max(size, 0)]
        fell_back = preference.kind == "fallback"
        self._metrics.preferences.labels(preference.kind).inc()
        log.log(
            logging.WARNING if fell_back else logging.INFO,
            "%s of %s: %s",
            "second best devices are preferred" if fell_back else "preferred devices",
            resource,
            preference.reason,
            extra={
                "resource": resource,
                "devices": preference.devices,
                "kind": preference.kind,
                "reason": preference.reason,
                "available": len(available),
            },
        )
        return list(preference.devices)

    def allocate(self, resource: str, devices: Sequence[str]) -> Grant:
        """Return what a container needs to use `devices`, and note that they are given away.

        Raises:
            DevicePluginError: one container cannot use these devices together; see `grant`.

        """
        snapshot = self._inventory.snapshot
        healthy = {device.id for device in offers(snapshot).get(resource, ()) if device.healthy}
        if doubtful := [device for device in devices if device not in healthy]:
            log.warning(
                "the kubelet allocates devices of %s that are not offered, or not healthy: %s",
                resource,
                _few(doubtful),
                extra={"resource": resource, "devices": doubtful},
            )
        nodes = _host_nodes()
        if self._by_cdi and not {snapshot.gpu_of(device) for device in devices} <= self._cdi.names:
            self._try_to_write_cdi()
        try:
            given = grant(
                snapshot,
                resource,
                devices,
                self._settings.strategies,
                nodes,
                self._cdi.names,
                self._settings.mps_directory,
            )
        except DevicePluginError as error:
            self._metrics.refused_allocations.labels(resource).inc()
            log.warning("an allocation is refused: %s", error, extra={"devices": tuple(devices)})
            raise
        self._inventory.change(
            partial(self._promises.hand_out, resource=resource, devices=devices, now=time.monotonic())
        )
        self._metrics.allocations.labels(resource).inc(len(devices))
        log.info(
            "allocated %d of %s: %s",
            len(devices),
            resource,
            _few(devices),
            extra={"resource": resource, "devices": tuple(devices), "environment": given.environment},
        )
        return given

    def tell_unseen_nodes(self) -> None:
        """Tell of GPUs that shall be given as device nodes, and whose nodes this process does not see."""
        if not self._settings.strategies & {Strategy.CDI_CRI, Strategy.DEVICE_NODES}:
            return
        nodes, snapshot = _host_nodes(), self._inventory.snapshot
        unseen = [gpu.uuid for gpu in snapshot.machine.gpus if not nodes.of_gpu(snapshot, gpu.uuid)]
        if unseen:
            log.warning(
                "device nodes of %s are not seen here, so containers are given them by %s alone: mount the "
                "host's /dev into the plugin's container, or set --device-list-strategy=envvar",
                _few(unseen),
                NVIDIA_VISIBLE_DEVICES,
            )

    def write_cdi(self) -> None:
        """Bring the CDI specification to what the node has now; remove it if nothing shall use it.

        Raises:
            CdiDirectoryError: its folder cannot be written.

        """
        if not self._by_cdi:
            self._cdi.remove()
            return
        self._cdi.clean()
        libraries = self._settings.driver_libraries
        document = specification(
            self._inventory.snapshot, _host_nodes(), "" if libraries is None else str(libraries)
        )
        self._cdi.write(document)

    async def keep_cdi(self) -> None:
        """Write the CDI specification at every change of the node, until cancelled."""
        while self._by_cdi:
            snapshot = self._inventory.snapshot
            self._try_to_write_cdi()
            await self._inventory.next_after(snapshot)

    def _try_to_write_cdi(self) -> None:
        try:
            self.write_cdi()
        except CdiDirectoryError as error:  # the folder was there at the start: do not end for this
            log.warning("the CDI specification is not what it should be: %s", error)


def _host_nodes() -> HostNodes:
    minors: dict[str, int] = {}
    with suppress(OSError):
        minors = parse_mig_minors(MIG_MINORS.read_text(encoding="ascii"))
    return HostNodes(os.path.exists, minors)


def _few(devices: Sequence[str]) -> str:
    """Return the first names; GiB are many."""
    return ", ".join([*devices[:MOST_NAMES], "…"] if len(devices) > MOST_NAMES else devices)
