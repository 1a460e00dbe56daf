"""Do the GPUs still answer? Probed off the kubelet's path; a GPU that comes back is offered again."""

import logging
import time
from asyncio import sleep
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from mcp2026.device_plugin.adapters.nvml import NvmlDriver
from mcp2026.device_plugin.background import blocking_call
from mcp2026.device_plugin.devices import Snapshot, after_rereading, with_health, without_driver
from mcp2026.device_plugin.errors import DriverNotRunningError, NvmlError
from mcp2026.device_plugin.inventory import Inventory

log = logging.getLogger(__name__)


class HealthProbe:
    """Probes the GPUs of a snapshot through the driver. Blocking, and for one thread at a time."""

    def __init__(self, driver: NvmlDriver, node_name: str) -> None:
        self._driver: NvmlDriver | None = driver
        self._node_name = node_name
        self._reread = False

    def probe(self, snapshot: Snapshot) -> Snapshot:
        """Return what `snapshot` looks like now."""
        try:
            if self._driver is None:
                self._driver = NvmlDriver.open()
                self._reread = True
            if self._reread or any(self._driver.answers(index) for index in snapshot.unreadable):
                snapshot = after_rereading(snapshot, read_snapshot(self._driver, self._node_name))
                self._reread = False
            failures = {gpu.uuid: self._driver.failure(gpu.uuid) for gpu in snapshot.machine.gpus}
        except DriverNotRunningError as error:
            self._drop_driver()
            return without_driver(snapshot, str(error))
        except NvmlError as error:
            return without_driver(snapshot, str(error))
        return with_health(snapshot, failures)

    def close(self) -> None:
        """Stop NVML."""
        self._drop_driver()

    def _drop_driver(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


def read_snapshot(driver: NvmlDriver, node_name: str) -> Snapshot:
    """Read all GPUs."""
    reading = driver.read(node_name)
    return Snapshot(reading.machine, unreadable=reading.unreadable, minor_numbers=reading.minor_numbers)


def report_changes(before: Snapshot, after: Snapshot) -> None:
    """Log each GPU that failed or came back between two snapshots."""
    for uuid, reason in after.unhealthy.items():
        if before.unhealthy.get(uuid) != reason:
            log.error("a GPU is unhealthy", extra={"gpu": uuid, "reason": reason})
    for uuid in before.unhealthy:
        if uuid not in after.unhealthy:
            log.info("a GPU is healthy again", extra={"gpu": uuid})


LONGEST_PROBE_S = 30.0
"""A probe that takes longer hangs in the driver; the plugin is then not ready."""


class HealthLoop:
    """Probes every `interval_s` and brings what it saw into the inventory."""

    def __init__(self, probe: HealthProbe, inventory: Inventory, interval_s: float) -> None:
        self._probe = probe
        self._inventory = inventory
        self._interval_s = interval_s
        self._began: float | None = None

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            await sleep(self._interval_s)
            before = self._inventory.snapshot
            self._began = time.monotonic()
            after = await blocking_call(partial(self._probe.probe, before))
            self._began = None
            report_changes(before, after)
            self._inventory.change(_probed(after))

    def why_not_ready(self) -> str:
        """Return what is wrong with the driver; empty when nothing is."""
        if self._began is not None and time.monotonic() - self._began > LONGEST_PROBE_S:
            return "the NVIDIA driver does not answer the health probe"
        failure = self._inventory.snapshot.driver_failure
        return f"the NVIDIA driver fails: {failure}" if failure else ""


def _probed(seen: Snapshot) -> Callable[[Snapshot], Snapshot]:
    return lambda now: replace(
        now,
        machine=seen.machine,
        conditions=seen.conditions,
        unreadable=seen.unreadable,
        minor_numbers=seen.minor_numbers,
        driver_failure=seen.driver_failure,
    )
