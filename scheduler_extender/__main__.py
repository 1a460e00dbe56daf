"""Start-up: settings → cluster watch → cache → server; the only place that wires things together.

Ends with 0 on SIGTERM and SIGINT, with 2 on a wrong setting or configuration file, with 1 when it cannot
start or go on.
"""

import asyncio
import logging
import math
import os
import signal
import sys
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from kubernetes.aio import client

from mcp2026.api.configuration_file import ConfigurationFile
from mcp2026.api.errors import ConfigurationError, SettingsError
from mcp2026.api.structured_log import configure_logging
from mcp2026.api.time_slices import SHORTEST_NS, ask_for_slices
from mcp2026.scheduler_extender.adapters.bindings import Bindings
from mcp2026.scheduler_extender.adapters.certificates import ServerCertificates
from mcp2026.scheduler_extender.adapters.cluster_watch import ClusterWatch, cluster_configuration
from mcp2026.scheduler_extender.adapters.leases import Leases
from mcp2026.scheduler_extender.background import Background
from mcp2026.scheduler_extender.binding import Binder
from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.campaigning import Campaign
from mcp2026.scheduler_extender.cluster_events import Kind
from mcp2026.scheduler_extender.configuration import parse_configuration
from mcp2026.scheduler_extender.errors import AddressInUseError, ExtenderError
from mcp2026.scheduler_extender.gangs import Gangs
from mcp2026.scheduler_extender.leadership import Alone
from mcp2026.scheduler_extender.metrics import Metrics
from mcp2026.scheduler_extender.pauses import keep_pauses_short
from mcp2026.scheduler_extender.policy import PolicyInForce
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.scoring_ahead import score_ahead
from mcp2026.scheduler_extender.server import ExtenderServer
from mcp2026.scheduler_extender.settings import ElectionSettings, Settings, read_settings

log = logging.getLogger("mcp2026.scheduler_extender")

KEEPALIVE_SECONDS = 300
"""Longer than the 90 s for which Go keeps an idle connection: the side that reuses it closes it."""
EXPIRY_SECONDS = 5
"""How often reservations are looked through for those that nobody took."""
SHUTDOWN_SECONDS = 5
"""For requests under way; the longest that kube-scheduler waits by default."""


LOCK_TURN_S = 0.0005
"""After which a thread that waits for Python's lock asks for it; the usual 5 ms are longer than an answer."""


def main() -> None:
    """Run `mcp2026-scheduler-extender`."""
    try:
        settings = read_settings(sys.argv[1:], os.environ)
    except SettingsError as error:
        print(f"mcp2026-scheduler-extender: {error}", file=sys.stderr)
        sys.exit(2)
    configure_logging(settings.log_format, settings.log_level)
    ask_for_slices(SHORTEST_NS)  # kube-scheduler waits for each answer, and often has the same cores
    sys.setswitchinterval(LOCK_TURN_S)
    try:
        asyncio.run(run(settings))
    except ConfigurationError as error:
        print(f"mcp2026-scheduler-extender: {error}", file=sys.stderr)
        sys.exit(2)
    except ExtenderError as error:
        print(f"mcp2026-scheduler-extender: {error}", file=sys.stderr)
        sys.exit(1)


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigurationError: the configuration file cannot be used.
        ExtenderError: there is no way to a cluster, or the address is taken.

    """
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)

    path = settings.configuration_file
    file = None if path is None else ConfigurationFile(path, parse_configuration)
    in_force = PolicyInForce() if file is None else PolicyInForce(file.read())
    cache = ClusterCache()
    gangs = Gangs(cache)
    configuration = await cluster_configuration(settings.kubeconfig)
    memo = ScoreMemo()
    watch = ClusterWatch(configuration, cache.apply, lambda kind: metrics.watch_breaks.labels(kind).inc())
    choices = Background("choices")
    certificates = None if settings.tls is None else ServerCertificates(settings.tls)

    async with AsyncExitStack() as at_the_end:
        at_the_end.callback(choices.close)
        api = await at_the_end.enter_async_context(client.ApiClient(configuration))
        # Of its own, so that a renewal never waits behind bindings.
        leases = Leases(await at_the_end.enter_async_context(client.ApiClient(configuration)))
        campaign = None if settings.election is None else _campaign(settings.election, leases, cache, watch)
        leadership = campaign or Alone()
        if campaign is not None:
            at_the_end.push_async_callback(campaign.leave)
        metrics = Metrics(cache, memo, leadership)
        binder = Binder(cache, memo, Bindings(api), choices, time.monotonic, gangs, in_force, leadership)
        server = ExtenderServer(
            cache,
            memo,
            metrics,
            watch.problems,
            choices,
            binder,
            gangs,
            in_force,
            leadership=leadership,
        )
        at_the_end.callback(server.close)
        runners: list[web.AppRunner] = []
        at_the_end.push_async_callback(_close, server, runners)
        verbs = server.verbs_app()
        runners.append(await _listen(verbs, settings.host, settings.port, "verbs", certificates))
        if settings.metrics_port is not None:
            app = server.health_app()
            runners.append(await _listen(app, settings.metrics_host, settings.metrics_port, "health"))
        loops = [watch.run(), _expire(cache), score_ahead(cache, memo, choices, in_force)]
        loops.append(keep_pauses_short(cache))
        if file is not None:
            loops.append(file.follow(in_force.replace, _keep_policy))
        if campaign is not None:
            loops.append(campaign.run())
        if certificates is not None:
            loops.append(certificates.follow())
        await _until_stopped(stop, loops)
    log.info("ended on request")


def _campaign(
    settings: ElectionSettings, leases: Leases, cache: ClusterCache, watch: ClusterWatch
) -> Campaign:
    async def catch_up() -> None:
        # What was assumed before another may have led: whatever of it was bound is in the list.
        cache.expire(math.inf)
        await watch.relist(Kind.PODS)

    def wall() -> str:
        return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"

    return Campaign(settings, leases, catch_up, time.monotonic, wall)


def _keep_policy(problem: str) -> None:
    log.error("the policy stays as it was: %s", problem)


async def _close(server: ExtenderServer, runners: list[web.AppRunner]) -> None:
    server.begin_closing()
    for runner in runners:
        await runner.cleanup()


async def _expire(cache: ClusterCache) -> None:
    while True:
        await asyncio.sleep(EXPIRY_SECONDS)
        for key in cache.expire(time.monotonic()):
            log.warning("%s was never seen bound: what was reserved for it is free again", key)


async def _until_stopped(stop: asyncio.Event, loops: list[Coroutine[Any, Any, None]]) -> None:
    """Wait for `stop` while `loops` run; a defect in one of them ends the process."""
    running = [asyncio.create_task(loop) for loop in loops]
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait((*running, stopping), return_when=asyncio.FIRST_COMPLETED)
    for task in (*running, stopping):
        task.cancel()
    await asyncio.wait((*running, stopping))
    for task in done - {stopping}:
        await task


async def _listen(
    app: web.Application, host: str, port: int, what: str, certificates: ServerCertificates | None = None
) -> web.AppRunner:
    runner = web.AppRunner(
        app, access_log=None, keepalive_timeout=KEEPALIVE_SECONDS, shutdown_timeout=SHUTDOWN_SECONDS
    )
    await runner.setup()
    try:
        context = None if certificates is None else certificates.context
        await web.TCPSite(runner, host, port, ssl_context=context).start()
    except OSError as error:
        await runner.cleanup()
        raise AddressInUseError(host, port, error.strerror or str(error)) from error
    bound = runner.addresses[0][1]
    log.info("serving %s on %s:%d", what, host, bound, extra={"serving": what, "port": bound})
    return runner


if __name__ == "__main__":
    main()
