"""Put together, by the settings, what brings new revisions and what is told of them."""

import asyncio
import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mcp2026.api.serving import ServingConfig
from mcp2026.runtime.errors import StartupError
from mcp2026.runtime.revisions.config_file import watch_file
from mcp2026.runtime.revisions.following import Bring, Follower, Report, Rounds, Standing
from mcp2026.runtime.revisions.newest import Newest
from mcp2026.runtime.settings import Settings
from mcp2026.runtime.settings_reading import check_batching, with_batching

log = logging.getLogger(__name__)


async def follow_revisions(settings: Settings, rounds: Rounds, live: ServingConfig, bring: Bring) -> int:
    """Serve new revisions of `live` until one says that the model is stopped, and return its number.

    Raises:
        StartupError: the cluster is to be watched, and there are no credentials for it.

    """
    mailbox = Newest()
    with ExitStack() as stack:
        report: Report = _nobody
        if settings.serving_config_map is not None:
            report = _watch_cluster(settings, live.model, mailbox, stack)

        def with_flags(config: ServingConfig) -> ServingConfig:
            whole = with_batching(config, dict(settings.batching))
            check_batching(settings, whole)
            return whole

        (asked,) = settings.models or (None,)
        following = asyncio.create_task(
            Follower(live.model, mailbox, rounds, with_flags, report, bring, asked).run(live.revision)
        )
        stack.callback(following.cancel)
        if settings.serving_config is not None:
            watching = asyncio.create_task(watch_file(Path(settings.serving_config), mailbox))
            stack.callback(watching.cancel)
            either: set[asyncio.Future[Any]] = {watching, following}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
        return await following


def _nobody(_standing: Standing) -> None:
    """Outside a cluster the log tells it."""


def _watch_cluster(settings: Settings, model: str, mailbox: Newest, stack: ExitStack) -> Report:
    # Imported here: a server outside a cluster needs none of it.
    from kubernetes import client, config
    from kubernetes.config import ConfigException

    from mcp2026.runtime.revisions.config_map import ConfigMapWatch
    from mcp2026.runtime.revisions.lease_report import LeaseReport, PodIdentity, told_of

    # The settings were checked: none of these is None.
    pod = PodIdentity(str(settings.pod_namespace), str(settings.pod_name), str(settings.pod_uid))
    try:
        config.load_config()  # type: ignore[no-untyped-call]  # the client has no types
    except ConfigException as error:
        raise StartupError(
            f"--serving-config-map: no credentials for the API server: {error}. "
            "In a pod its service account must be mounted; elsewhere set KUBECONFIG"
        ) from error
    # One client for each thread: they share no connection, and none waits for the other's.
    watch = ConfigMapWatch(
        client.CoreV1Api(client.ApiClient()),
        pod.namespace,
        str(settings.serving_config_map),
        asyncio.get_running_loop(),
    )
    lease = LeaseReport(client.CoordinationV1Api(client.ApiClient()), pod, model)
    watch.start(mailbox)
    lease.start()
    stack.callback(watch.close)
    stack.callback(lease.close)
    return lambda standing: lease.tell(told_of(standing))
