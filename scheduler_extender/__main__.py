"""Start-up: settings → cluster watch → cache → server; the only place that wires things together.

Ends with 0 on SIGTERM and SIGINT, with 2 on a wrong setting, with 1 when it cannot start or go on.
"""

import asyncio
import logging
import os
import signal
import sys

from aiohttp import web

from mcp2026.api.errors import SettingsError
from mcp2026.api.structured_log import configure_logging
from mcp2026.scheduler_extender.adapters.cluster_watch import ClusterWatch, cluster_configuration
from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.errors import AddressInUseError, ExtenderError
from mcp2026.scheduler_extender.metrics import Metrics
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.server import ExtenderServer
from mcp2026.scheduler_extender.settings import Settings, read_settings

log = logging.getLogger("mcp2026.scheduler_extender")

KEEPALIVE_SECONDS = 300
"""Longer than the 90 s for which Go keeps an idle connection: the side that reuses it closes it."""
SHUTDOWN_SECONDS = 5
"""For requests under way; the longest that kube-scheduler waits by default."""


def main() -> None:
    """Run `mcp2026-scheduler-extender`."""
    try:
        settings = read_settings(sys.argv[1:], os.environ)
    except SettingsError as error:
        print(f"mcp2026-scheduler-extender: {error}", file=sys.stderr)
        sys.exit(2)
    configure_logging(settings.log_format, settings.log_level)
    try:
        asyncio.run(run(settings))
    except ExtenderError as error:
        print(f"mcp2026-scheduler-extender: {error}", file=sys.stderr)
        sys.exit(1)


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ExtenderError: there is no way to a cluster, or the address is taken.

    """
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)

    cache = ClusterCache()
    configuration = await cluster_configuration(settings.kubeconfig)
    memo = ScoreMemo()
    metrics = Metrics(cache, memo)
    watch = ClusterWatch(configuration, cache.apply, lambda kind: metrics.watch_breaks.labels(kind).inc())
    server = ExtenderServer(cache, memo, metrics, watch.problems)

    runners = [await _listen(server.verbs_app(), settings.host, settings.port, "verbs")]
    try:
        if settings.metrics_port is not None:
            app = server.health_app()
            runners.append(await _listen(app, settings.metrics_host, settings.metrics_port, "health"))
        await _until_stopped(stop, watch)
    finally:
        server.begin_closing()
        for runner in runners:
            await runner.cleanup()
        server.close()
    log.info("ended on request")


async def _until_stopped(stop: asyncio.Event, watch: ClusterWatch) -> None:
    """Wait for `stop`, following the cluster; a defect in following it ends the process."""
    following = asyncio.create_task(watch.run())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((following, stopping), return_when=asyncio.FIRST_COMPLETED)
    if following.done():
        stopping.cancel()
        await following
    following.cancel()
    await asyncio.wait((following,))


async def _listen(app: web.Application, host: str, port: int, what: str) -> web.AppRunner:
    runner = web.AppRunner(
        app, access_log=None, keepalive_timeout=KEEPALIVE_SECONDS, shutdown_timeout=SHUTDOWN_SECONDS
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise AddressInUseError(host, port, error.strerror or str(error)) from error
    bound = runner.addresses[0][1]
    log.info("serving %s on %s:%d", what, host, bound, extra={"serving": what, "port": bound})
    return runner


if __name__ == "__main__":
    main()
