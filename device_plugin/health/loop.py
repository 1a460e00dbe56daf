"""Keeps `Snapshot.conditions` right: looks at the GPUs now and then, and at once when the driver tells."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from mcp2026.api.gpu_topology import GpuHealth
from mcp2026.device_plugin.background import blocking_call
from mcp2026.device_plugin.devices import GpuCondition, Snapshot
from mcp2026.device_plugin.driver import EventKind, EventSource, GpuEvent
from mcp2026.device_plugin.health.ear import Ear
from mcp2026.device_plugin.health.monitor import HealthMonitor
from mcp2026.device_plugin.health.probing import HealthProbe, Look
from mcp2026.device_plugin.inventory import Inventory

log = logging.getLogger(__name__)

LONGEST_PROBE_S = 30.0
"""A probe that takes longer hangs in the driver; the plugin is then not ready."""
DRIVER_NOT_RUNNING = "DriverNotRunning"
HEALTHS: tuple[GpuHealth, ...] = ("Healthy", "Degraded", "Unhealthy")


class HealthMetrics:
    """What is counted about health."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix = "mcp2026_device_plugin"
        self.xids = Counter(
            f"{prefix}_xids",
            "XIDs that the driver told of, also ignored ones",
            ["gpu", "xid"],
            registry=registry,
        )
        self.health = Gauge(
            f"{prefix}_gpu_health", "1 for the state that the GPU is in", ["gpu", "health"], registry=registry
        )

    def observe(self, snapshot: Snapshot) -> None:
        """Set the gauges to what `snapshot` says."""
        for gpu in snapshot.machine.gpus:
            condition = snapshot.conditions.get(gpu.uuid)
            now = "Healthy" if condition is None else condition.health
            for health in HEALTHS:
                self.health.labels(gpu.uuid, health).set(health == now)


class HealthLoop:
    """Looks every `interval_s`. `listen` opens the source of events; None where there is none."""

    def __init__(
        self,
        probe: HealthProbe,
        inventory: Inventory,
        interval_s: float,
        monitor: HealthMonitor,
        metrics: HealthMetrics,
        listen: Callable[[], EventSource] | None = None,
    ) -> None:
        self._probe = probe
        self._inventory = inventory
        self._interval_s = interval_s
        self._monitor = monitor
        self._metrics = metrics
        self._listen = listen
        self._began: float | None = None
        self.looked = asyncio.Event()
        """Set once the conditions come from a look at the GPUs."""
        self._woken = asyncio.Event()
        self._ear: Ear | None = None

    async def run(self) -> None:
        """Look, and listen, until cancelled."""
        if self._listen is not None:
            loop = asyncio.get_running_loop()
            self._ear = Ear(self._listen, partial(_in_loop, loop, self._heard))
            threading.Thread(target=self._ear.listen, name="driver-events", daemon=True).start()
        try:
            while True:
                await self._look()
                self.looked.set()
                await self._wait()
        finally:
            if self._ear is not None:
                self._ear.stop()

    def why_not_ready(self) -> str:
        """Return what is wrong with the driver; empty when nothing is."""
        if self._began is not None and time.monotonic() - self._began > LONGEST_PROBE_S:
            return "the NVIDIA driver does not answer the health probe"
        failure = self._inventory.snapshot.driver_failure
        return f"the NVIDIA driver fails: {failure}" if failure else ""

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._interval_s):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _look(self) -> None:
        self._woken.clear()
        self._began = time.monotonic()
        look = await blocking_call(partial(self._probe.look, self._inventory.snapshot))
        self._began = None
        lost = bool(look.driver_failure)
        if self._ear is not None and (lost or look.snapshot.machine is not self._inventory.snapshot.machine):
            self._ear.begin_anew()
        if lost:
            self._monitor.lose_driver()
        else:
            slices = {
                uuid: {instance.uuid for instance in instances}
                for uuid, instances in self._inventory.snapshot.mig_instances.items()
            }
            self._monitor.look(look.vitals, slices, time.monotonic())
        self._publish(look)

    def _heard(self, event: GpuEvent) -> None:
        if event.kind is EventKind.XID:
            self._metrics.xids.labels(event.uuid or "all", str(event.code)).inc()
        log.warning(
            "the driver tells of a fault of %s: %s %d",
            event.mig_uuid or event.uuid or "all GPUs",
            event.kind,
            event.code,
            extra={"gpu": event.uuid, "kind": event.kind, "xid": event.code},
        )
        known = self._inventory.snapshot.positions.keys()
        self._monitor.tell(event, known, time.monotonic())
        self._publish(None)
        self._woken.set()

    def _publish(self, look: Look | None) -> None:
        before = self._inventory.snapshot
        self._inventory.change(partial(_judged, look, self._monitor.conditions(time.monotonic())))
        after = self._inventory.snapshot
        _report(before.conditions, after.conditions)
        self._metrics.observe(after)


def _judged(look: Look | None, conditions: Mapping[str, GpuCondition], now: Snapshot) -> Snapshot:
    """Return the snapshot `now` with what was seen and judged; without a look its driver is as before."""
    failure = now.driver_failure if look is None else look.driver_failure
    if failure:
        gone = GpuCondition("Unhealthy", DRIVER_NOT_RUNNING, failure)
        conditions = dict.fromkeys(now.positions, gone)
    if look is not None and not look.driver_failure and look.snapshot.machine is not now.machine:
        now = replace(
            now,
            machine=look.snapshot.machine,
            unreadable=look.snapshot.unreadable,
            minor_numbers=look.snapshot.minor_numbers,
            mig_instances=look.snapshot.mig_instances,
        )
    return replace(now, conditions=conditions, driver_failure=failure)


def _report(before: Mapping[str, GpuCondition], after: Mapping[str, GpuCondition]) -> None:
    for uuid, condition in after.items():
        if before.get(uuid) != condition:
            level = logging.ERROR if condition.health == "Unhealthy" else logging.WARNING
            text = "a GPU is unhealthy" if condition.health == "Unhealthy" else "a GPU is degraded"
            extra = {"gpu": uuid, "reason": condition.reason, "detail": condition.message}
            log.log(level, "%s: %s: %s", text, uuid, condition.message, extra=extra)
    for uuid in before.keys() - after.keys():
        log.info("a GPU is healthy again: %s", uuid, extra={"gpu": uuid})


def _in_loop(loop: asyncio.AbstractEventLoop, take: Callable[[GpuEvent], None], event: GpuEvent) -> None:
    loop.call_soon_threadsafe(take, event)
