"""kopf brings watch events and answers the liveness probe. Nothing else of it is used.

`on.event` handlers neither annotate objects nor put finalizers on them; the prefixes are set all the same, so
that a handler added later writes our names and not kopf's.
"""

import logging
import os
import socket
from typing import Any

import kopf

from mcp2026.api.names import GROUP, MANAGED_BY
from mcp2026.operator.adapters.api_server import KINDS, Kind
from mcp2026.operator.controller import Controller
from mcp2026.operator.settings import Settings

LIVENESS_PATH = "/healthz"
_LISTS_MISSED_UNTIL_DEAD = 3
_CHATTY_LOGGERS = ("kopf.objects", "kopf.activities.probe", "aiohttp.access")
"""They log one line for each event and each probe."""


async def watch(controller: Controller, settings: Settings) -> None:
    """Feed `controller` with events until the process is told to end (SIGTERM, SIGINT)."""
    for chatty in _CHATTY_LOGGERS:
        logging.getLogger(chatty).setLevel(logging.WARNING)
    port = settings.liveness_port
    await kopf.operator(
        registry=_registry(controller, settings),
        settings=_kopf_settings(),
        identity=_identity(),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        liveness_endpoint=f"http://0.0.0.0:{port}{LIVENESS_PATH}" if port else None,
    )


def _identity() -> Any:
    """Name this process to kopf, which would look up the user's name and fail where the user id has none."""
    return f"{MANAGED_BY}/{socket.gethostname()}/{os.getpid()}"


def _registry(controller: Controller, settings: Settings) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(_login)
    for kind in KINDS.values():
        _register(registry, controller, kind)

    async def full_list_is_fresh(**_: Any) -> float:
        age = controller.seconds_since_list()
        if age > _LISTS_MISSED_UNTIL_DEAD * settings.resync_seconds + 60:
            raise kopf.PermanentError(f"the last full list is {age:.0f} s old")
        return round(age, 1)

    kopf.on.probe(id="seconds_since_full_list", registry=registry)(full_list_is_fresh)
    return registry


def _login(**told: Any) -> kopf.ConnectionInfo | None:
    """Log in as the `kubernetes` client does.

    kopf's own service account login finds the API server by its name in the cluster's DNS, and is lost where
    that is down or missing; the client takes the address that the kubelet gives to every pod.
    """
    return kopf.login_via_client(**told)


def _register(registry: kopf.OperatorRegistry, controller: Controller, kind: Kind) -> None:
    async def heard(event: kopf.RawEvent, **_: Any) -> None:
        controller.heard(kind.kind, event["type"], dict(event["object"]))

    kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=f"heard-{kind.plural}")(heard)


def _kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.watching.server_timeout = 300
    settings.watching.connect_timeout = 30
    settings.watching.reconnect_backoff = 2
    settings.watching.chunk_size = 500
    for kind in KINDS.values():
        if kind.label_selector:
            settings.watching.label_selectors[kind.group, kind.version, kind.plural] = kind.label_selector
    settings.persistence.finalizer = f"{GROUP}/operator"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)
    return settings
