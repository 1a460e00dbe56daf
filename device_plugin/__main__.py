"""Start-up: settings → driver → plugin; the only place that wires things together.

Ends with 0 on SIGTERM and SIGINT, with 2 on a wrong setting, with 1 when it cannot start or go on.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from functools import partial

from mcp2026.api.errors import SettingsError
from mcp2026.api.gpu_topology import GPUTopologyStatus
from mcp2026.api.structured_log import configure_logging
from mcp2026.device_plugin.adapters.nvml import NvmlDriver
from mcp2026.device_plugin.adapters.plugin_server import DevicePluginService
from mcp2026.device_plugin.adapters.probe_endpoint import ProbeEndpoint
from mcp2026.device_plugin.background import blocking_call
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.errors import DevicePluginError, NoGpusError, NvmlError
from mcp2026.device_plugin.health import HealthLoop, HealthProbe, read_snapshot
from mcp2026.device_plugin.holdings import Promises
from mcp2026.device_plugin.holdings_watch import HoldingsWatch
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.metrics import Metrics
from mcp2026.device_plugin.plugin import Plugin
from mcp2026.device_plugin.publishing import keep_published
from mcp2026.device_plugin.settings import Settings, read_settings

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
    probe, snapshot = await _find_gpus(settings)
    try:
        log.info(
            "found %d GPUs, driver %s, CUDA %s",
            len(snapshot.machine.gpus),
            snapshot.machine.driver,
            snapshot.machine.cuda,
            extra={"gpus": [gpu.uuid for gpu in snapshot.machine.gpus]},
        )
        inventory, metrics, promises = Inventory(snapshot), Metrics(), Promises()
        loops: list[Callable[[], Awaitable[None]]] = [HoldingsWatch(settings, inventory, promises).run]
        if (write := _topology_writer(settings)) is not None:
            loops.append(partial(keep_published, inventory, write, metrics))
        plugin = Plugin(
            settings,
            inventory,
            metrics,
            lambda resource: DevicePluginService(resource, inventory, metrics, settings.pass_device_nodes),
            parts=[HealthLoop(probe, inventory, settings.health_interval_s)],
            loops=loops,
        )
        await plugin.run()
    finally:
        with suppress(TimeoutError):  # a driver that hangs does not hold up the end
            await asyncio.wait_for(blocking_call(probe.close), CLOSING_S)


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


def _topology_writer(settings: Settings) -> Callable[[GPUTopologyStatus], None] | None:
    if not settings.publish_topology:
        return None
    # Imported here: the Kubernetes client takes a second to load, which who does not publish need not wait.
    from mcp2026.device_plugin.adapters.topology_writer import TopologyWriter

    return TopologyWriter(settings.node_name).write


if __name__ == "__main__":
    main()
