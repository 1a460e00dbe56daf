"""`mcp2026-operator`: flags and environment → settings → API server → watch and reconcile."""

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence

from mcp2026.api.structured_log import configure_logging
from mcp2026.operator.adapters.api_server import ApiServer
from mcp2026.operator.adapters.watching import watch
from mcp2026.operator.controller import Controller
from mcp2026.operator.errors import OperatorError, SettingsError
from mcp2026.operator.settings import OperatorSettings, PodSettings

logger = logging.getLogger("mcp2026.operator")

_IMAGE_VARIABLE = "MCP2026_RUNTIME_IMAGE"


def parse_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> OperatorSettings:
    """Return the settings that flags give; an environment variable stands in for an absent flag.

    Raises:
        SettingsError: a value is missing or not allowed.

    """
    pods, whole = PodSettings(runtime_image=""), OperatorSettings(PodSettings(runtime_image=""))
    parser = argparse.ArgumentParser(
        "mcp2026-operator", description="Turns InferenceModels into serving pods."
    )
    parser.add_argument(
        "--namespace", action="append", default=[], help="watch this namespace only; repeatable"
    )
    parser.add_argument(
        "--runtime-image",
        default=environment.get(_IMAGE_VARIABLE),
        help=f"image of the model pods (or ${_IMAGE_VARIABLE}); required",
    )
    parser.add_argument(
        "--runtime-image-pull-policy",
        choices=["Always", "IfNotPresent", "Never"],
        default=pods.image_pull_policy,
        help="default: %(default)s",
    )
    parser.add_argument(
        "--scheduler-name", default=pods.scheduler_name, help="places pods with GPUs; default: %(default)s"
    )
    parser.add_argument(
        "--liveness-port",
        type=int,
        default=whole.liveness_port,
        help="GET /healthz; 0: none; default: %(default)s",
    )
    parser.add_argument(
        "--resync-seconds",
        type=float,
        default=whole.resync_seconds,
        help="time between full lists; default: %(default)s",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=whole.workers,
        help="models reconciled at the same time; default: %(default)s",
    )
    parser.add_argument("--log-format", choices=["text", "json"], default=whole.log_format)
    flags = parser.parse_args(arguments)
    if not flags.runtime_image:
        raise SettingsError(f"--runtime-image or ${_IMAGE_VARIABLE} is required: the image of the model pods")
    if flags.resync_seconds < 1:
        raise SettingsError(f"--resync-seconds: {flags.resync_seconds} is too short; allowed: 1 or more")
    if not 1 <= flags.workers <= 64:
        raise SettingsError(f"--workers: {flags.workers} is out of range; allowed: 1 to 64")
    return OperatorSettings(
        pods=PodSettings(
            runtime_image=flags.runtime_image,
            image_pull_policy=flags.runtime_image_pull_policy,
            scheduler_name=flags.scheduler_name,
        ),
        namespaces=tuple(flags.namespace),
        liveness_port=flags.liveness_port,
        resync_seconds=flags.resync_seconds,
        workers=flags.workers,
        log_format=flags.log_format,
    )


async def run(api: ApiServer, settings: OperatorSettings) -> None:
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
    """Run the operator; exit 0 when told to end, 1 when it cannot work, 2 on wrong flags."""
    try:
        settings = parse_settings(sys.argv[1:], os.environ)
    except SettingsError as error:
        sys.exit(_complain(error, 2))
    configure_logging(settings.log_format)
    try:
        api = ApiServer.discover(connections=settings.workers + 1)
        api.check()
        where = ", ".join(settings.namespaces) or "all namespaces"
        logger.info("watching %s; model pods run %s", where, settings.pods.runtime_image)
        asyncio.run(run(api, settings))
    except OperatorError as error:
        sys.exit(_complain(error, 1))
    logger.info("ended as told")


def _complain(error: OperatorError, status: int) -> int:
    sys.stderr.write(f"mcp2026-operator: {error}\n")
    return status


if __name__ == "__main__":
    main()
