"""`/healthz`, `/readyz` and `/metrics` over HTTP, for the kubelet's probes and Prometheus."""

import logging
import socket
from collections.abc import Callable

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from mcp2026.device_plugin.errors import ProbePortError
from mcp2026.device_plugin.metrics import Metrics

log = logging.getLogger(__name__)


class ProbeEndpoint:
    """Serves on all addresses. `why_not_ready` returns an empty text when the plugin is ready."""

    def __init__(self, port: int, metrics: Metrics, why_not_ready: Callable[[], str]) -> None:
        self._port = port
        self._metrics = metrics
        self._why_not_ready = why_not_ready
        application = web.Application()
        application.router.add_get("/healthz", self._alive)
        application.router.add_get("/readyz", self._ready)
        application.router.add_get("/metrics", self._scrape)
        self._runner = web.AppRunner(application, access_log=None)

    async def start(self) -> None:
        """Listen.

        Raises:
            ProbePortError: the port cannot be had.

        """
        try:
            listener = _listen(self._port)
        except OSError as error:
            raise ProbePortError(self._port, str(error)) from error
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()
        port = self._runner.addresses[0][1]
        log.info("probes and metrics are served on port %d", port, extra={"port": port})

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _alive(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _request: web.Request) -> web.Response:
        reason = self._why_not_ready()
        return web.Response(text=f"{reason or 'ok'}\n", status=503 if reason else 200)

    async def _scrape(self, _request: web.Request) -> web.Response:
        body = generate_latest(self._metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _listen(port: int) -> socket.socket:
    """Return one socket for IPv4 and IPv6, where the host has both."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
