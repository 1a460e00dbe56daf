"""Start-up: settings → driver → plugin; the only place that wires things together.

Ends with 0 on SIGTERM and SIGINT, with 2 on a wrong setting or configuration file, with 1 when it cannot
start or go on.
"""

import asyncio
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import replace
from functools import partial

from mcp2026.api.configuration_file import ConfigurationFile
from mcp2026.api.errors import ConfigurationError, SettingsError
from mcp2026.api.structured_log import configure_logging
from mcp2026.device_plugin.adapters.cluster import Cluster
from mcp2026.device_plugin.adapters.credentials import find_credentials
from mcp2026.device_plugin.adapters.mps_daemons import MpsDaemons
from mcp2026.device_plugin.adapters.node_watch import watch_reservations, watch_spec
from mcp2026.device_plugin.adapters.nvml import NvmlDriver, NvmlEvents
from mcp2026.device_plugin.adapters.probe_endpoint import ProbeEndpoint
from mcp2026.device_plugin.adapters.topology_writer import TopologyWriter
from mcp2026.device_plugin.background import blocking_call
from mcp2026.device_plugin.configuration import Configuration, parse_configuration
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.divergence_watch import watch_divergences
from mcp2026.device_plugin.errors import DevicePluginError, NoGpusError, NvmlError
from mcp2026.device_plugin.health import HealthLoop, HealthMetrics, HealthProbe, read_snapshot
from mcp2026.device_plugin.health.monitor import HealthMonitor
from mcp2026.device_plugin.health.node_report import NodeReport
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.metrics import Metrics
from mcp2026.device_plugin.plugin import Loop, Plugin
from mcp2026.device_plugin.publishing import keep_published
from mcp2026.device_plugin.reservations import Reservation
from mcp2026.device_plugin.settings import Settings, read_settings
from mcp2026.device_plugin.sharing.asking import kubelet_view
from mcp2026.device_plugin.sharing.loop import SharingLoop
from mcp2026.device_plugin.wishes import Wishes
from mcp2026.device_plugin.wishes_loop import WishesLoop

log = logging.getLogger("mcp2026.device_plugin")

CLOSING_S = 2.0
"""Longest wait for a driver to close."""


def main() -> None:
    """Run `mcp2026-device-plugin`."""
    try:
        settings = read_settings(sys.argv[1:], os.environ)
    except SettingsError as error:
        print(f"mcp2026-device-plugin: {error}", file=sys.stderr)
        sys.exit(2)
    configure_logging(settings.log_format, settings.log_level)
    try:
        asyncio.run(_run_until_signal(settings))
    except ConfigurationError as error:
        print(f"mcp2026-device-plugin: {error}", file=sys.stderr)
        sys.exit(2)
    except DevicePluginError as error:
        print(f"mcp2026-device-plugin: {error}", file=sys.stderr)
        sys.exit(1)


async def _run_until_signal(settings: Settings) -> None:
    work = asyncio.create_task(_run(settings))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, work, number)
    with suppress(asyncio.CancelledError):
        await work


def _stop(work: "asyncio.Task[None]", number: signal.Signals) -> None:
    log.info("stopping on %s", number.name)
    work.cancel()


async def _run(settings: Settings) -> None:
    path = settings.configuration_file
    configuration = None if path is None else ConfigurationFile(path, parse_configuration)
    first = configuration.read() if configuration else Configuration()
    probe, snapshot = await _find_gpus(settings)
    try:
        log.info(
            "found %d GPUs, driver %s, CUDA %s",
            len(snapshot.machine.gpus),
            snapshot.machine.driver,
            snapshot.machine.cuda,
            extra={"gpus": [gpu.uuid for gpu in snapshot.machine.gpus]},
        )
        inventory, metrics = Inventory(snapshot), Metrics()
        wishes = WishesLoop(Wishes(settings.node_name, first), inventory, configuration)
        async with AsyncExitStack() as stack:
            loops: list[Loop] = [wishes.run]
            health = HealthLoop(
                probe,
                inventory,
                settings.health_interval_s,
                HealthMonitor(first.health),
                HealthMetrics(metrics.registry),
                NvmlEvents.open,
            )
            if settings.publish_topology:
                cluster = Cluster(partial(find_credentials, os.environ))
                stack.push_async_callback(cluster.close)
                loops += _cluster_loops(settings, cluster, inventory, wishes, metrics)
                report = NodeReport(inventory, cluster, settings.node_name, first.health, health.looked)
                loops.append(report.run)
            else:
                wishes.begin()
            sharing = SharingLoop(
                inventory,
                probe,
                MpsDaemons(settings.mps_directory),
                partial(kubelet_view, settings, inventory),
                settings.node_name,
            )
            await Plugin(settings, inventory, metrics, parts=[health, sharing], loops=loops).run()
    finally:
        with suppress(TimeoutError):  # a driver that hangs does not hold up the end
            await asyncio.wait_for(blocking_call(probe.close), CLOSING_S)


def _cluster_loops(
    settings: Settings, cluster: Cluster, inventory: Inventory, wishes: WishesLoop, metrics: Metrics
) -> list[Loop]:
    """Return what is done with the API server."""

    def reserve(reservations: tuple[Reservation, ...]) -> None:
        inventory.change(lambda now: replace(now, reservations=reservations))

    node = settings.node_name
    return [
        watch_spec(cluster, node, wishes.spec_seen).run,
        watch_reservations(cluster, node, settings.names, reserve).run,
        partial(watch_divergences, inventory, cluster, metrics, node),
        partial(keep_published, inventory, TopologyWriter(cluster, node), metrics),
    ]


async def _find_gpus(settings: Settings) -> tuple[HealthProbe, Snapshot]:
    """Return the node's GPUs; where there are none, fail or look again and again, as the settings say."""
    endpoint: ProbeEndpoint | None = None
    reason = ""
    try:
        while True:
            try:
                return await blocking_call(partial(_open_driver, settings.node_name))
            except NvmlError as error:
                if settings.fail_on_no_gpus:
                    raise
                if str(error) != reason:
                    reason = str(error)
                    log.warning("%s; idle until that changes, as --no-fail-on-no-gpus asks", reason)
            if endpoint is None and settings.metrics_port is not None:
                endpoint = ProbeEndpoint(settings.metrics_port, Metrics(), lambda: "")
                await endpoint.start()
            await asyncio.sleep(settings.health_interval_s)
    finally:
        if endpoint is not None:
            await endpoint.stop()


def _open_driver(node_name: str) -> tuple[HealthProbe, Snapshot]:
    with ExitStack() as on_failure:
        driver = on_failure.enter_context(NvmlDriver.open())
        snapshot = read_snapshot(driver, node_name)
        if not snapshot.machine.gpus:
            reasons = (f"GPU {index}: {reason}" for index, reason in snapshot.unreadable.items())
            raise NoGpusError(", ".join(reasons))
        on_failure.pop_all()
    return HealthProbe(driver, node_name), snapshot


if __name__ == "__main__":
    main()
