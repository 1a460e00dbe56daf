"""The serving configuration in a ConfigMap, watched at the API server: there it is new at once.

Blocking requests in a thread of their own. The account of the pod may get and watch this one object, so the
watch is for its name alone.
"""

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

from mcp2026.api.names import SERVING_CONFIG_KEY
from mcp2026.runtime.revisions.newest import Newest

if TYPE_CHECKING:
    from kubernetes import client

log = logging.getLogger(__name__)

WATCH_SECONDS = 20
"""After this the API server ends a watch, and a new one begins with a look at what is there now.

Short, for nothing else shows that a connection is lost behind a proxy that still acknowledges its packets.
"""
SILENCE_SECONDS = WATCH_SECONDS + 10
"""A connection that is silent for longer is taken for lost."""
FIRST_BACKOFF, LONGEST_BACKOFF = 0.5, 30.0


class ConfigMapWatch:
    """Puts the document of one ConfigMap into a mailbox, and again whenever it changes."""

    def __init__(
        self, core: "client.CoreV1Api", namespace: str, name: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Watch with `core`, which belongs to the watch alone: `close` ends its connections."""
        self._core = core
        self._namespace = namespace
        self._name = name
        self._loop = loop
        self._ended = threading.Event()
        self._mailbox: Newest | None = None

    def start(self, mailbox: Newest) -> None:
        """Begin to fill `mailbox`."""
        self._mailbox = mailbox
        threading.Thread(target=self._run, name="config-map-watch", daemon=True).start()

    def close(self) -> None:
        """Look no further. The thread ends with its present request."""
        self._ended.set()

    def _run(self) -> None:
        backoff = FIRST_BACKOFF
        while not self._ended.is_set():
            try:
                self._watch_once()
                backoff = FIRST_BACKOFF
            except Exception as error:  # the client's, urllib3's and the network's have no base in common
                log.warning(
                    "the ConfigMap %s cannot be watched, again in %.1f s: %s", self._name, backoff, error
                )
                self._ended.wait(backoff)
                backoff = min(2 * backoff, LONGEST_BACKOFF)

    def _watch_once(self) -> None:
        """Follow the object until the API server ends the watch."""
        from kubernetes import watch

        selector = f"metadata.name={self._name}"
        events = watch.Watch().stream(  # type: ignore[no-untyped-call]  # the client has no types
            self._core.list_namespaced_config_map,
            self._namespace,
            field_selector=selector,
            timeout_seconds=WATCH_SECONDS,
            _request_timeout=(10, SILENCE_SECONDS),
        )
        for event in events:
            if self._ended.is_set():
                return
            self._told(event["type"], event["object"])

    def _told(self, kind: str, config_map: Any) -> None:
        document = (config_map.data or {}).get(SERVING_CONFIG_KEY)
        if kind not in ("ADDED", "MODIFIED") or document is None:
            log.warning("the ConfigMap %s has no %s now; what is live stays", self._name, SERVING_CONFIG_KEY)
            return
        assert self._mailbox is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._mailbox.put, document.encode())
