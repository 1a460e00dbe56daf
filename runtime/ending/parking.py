"""A server that serves nothing: live, not ready, until it is told to end. The kubelet leaves it alone."""

import asyncio
import logging
import os
import signal

from mcp2026.runtime.health import Health, Phase
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics, block_sizes
from mcp2026.runtime.metrics.shared_blocks import create_shared_memory
from mcp2026.runtime.process.accepting import Acceptor, AcceptPauses
from mcp2026.runtime.process.addresses import url_host
from mcp2026.runtime.process.sockets import BACKLOG, PortReservation
from mcp2026.runtime.protocol.connections import ConnectionLimits, Connections
from mcp2026.runtime.protocol.listener import connection_factory
from mcp2026.runtime.protocol.observability import Observability
from mcp2026.runtime.settings import Settings

log = logging.getLogger(__name__)


async def park(settings: Settings) -> None:
    """Answer /healthz with 200 and /readyz with 503 on the HTTP port, until SIGTERM or SIGINT.

    Raises:
        StartupError: the port cannot be had.

    """
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    table = create_shared_memory(block_sizes(0))
    metrics = RuntimeMetrics(table, 0, 0)
    metrics.claim("", (), 0)
    health = Health()
    health.advance(Phase.DRAINING)
    reservation = PortReservation(settings.host, settings.port)
    connections = Connections(loop, metrics.connections)
    factory = connection_factory(Observability(health, metrics), ConnectionLimits(), connections, loop)
    listeners = reservation.listeners()
    for one in listeners:
        one.listen(BACKLOG)
    pauses = AcceptPauses()
    acceptors = [Acceptor(loop, one, factory, pauses, metrics.connection_waits) for one in listeners]
    url = f"http://{url_host(settings.host)}:{reservation.port}"
    log.info("live and not ready on %s", url, extra={"url": url})
    try:
        await told.wait()
    finally:
        for acceptor in acceptors:
            acceptor.close()
        reservation.close()
        os.close(table)
