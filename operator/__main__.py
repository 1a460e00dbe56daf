"""Start-up: settings → API server → watch and reconcile; the only place that wires things together.

Ends with 0 on SIGTERM and SIGINT, with 2 on a wrong setting, with 1 when it cannot start or go on.
"""

import asyncio
import contextlib
import logging
import os
import sys

from mcp2026.api.errors import SettingsError
from mcp2026.api.structured_log import configure_logging
from mcp2026.operator.adapters.api_server import ApiServer
from mcp2026.operator.adapters.watching import watch
from mcp2026.operator.controller import Controller
from mcp2026.operator.errors import OperatorError
from mcp2026.operator.settings import Settings, read_settings

log = logging.getLogger("mcp2026.operator")


async def run(api: ApiServer, settings: Settings) -> None:
    """Reconcile until the process is told to end; a controller that fails ends the process too."""
    controller = Controller(api, settings)
    watching = asyncio.create_task(watch(controller, settings))
    working = asyncio.create_task(controller.run())
    done, rest = await asyncio.wait({watching, working}, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    for task in done:
        task.result()


def main() -> None:
    """Run `mcp2026-operator`."""
    try:
        settings = read_settings(sys.argv[1:], os.environ)
    except SettingsError as error:
        print(f"mcp2026-operator: {error}", file=sys.stderr)
        sys.exit(2)
    configure_logging(settings.log_format, settings.log_level)
    try:
        api = ApiServer.discover(connections=settings.workers + 1)
        api.check()
        where = ", ".join(settings.namespaces) or "all namespaces"
        log.info("watching %s; model pods run %s", where, settings.pods.runtime_image)
        asyncio.run(run(api, settings))
    except OperatorError as error:
        print(f"mcp2026-operator: {error}", file=sys.stderr)
        sys.exit(1)
    log.info("ended as told")


if __name__ == "__main__":
    main()
