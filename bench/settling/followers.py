"""Pods that follow revisions and report as the runtime does, and load nothing: many of them in one process.

They run the runtime's own watch, following and report; only the step that loads and switches is left out.
"""

import asyncio
import logging
import threading
from collections.abc import Mapping
from typing import Any

from kubernetes import client, config

from mcp2026.api.serving import ServingConfig, decode_serving_config
from mcp2026.runtime.revisions.config_map import ConfigMapWatch
from mcp2026.runtime.revisions.following import Follower, NextConfig
from mcp2026.runtime.revisions.lease_report import LeaseReport, PodIdentity, told_of
from mcp2026.runtime.revisions.newest import Newest


class _AtOnce:
    """Serves each revision at once."""

    def __init__(self, live: ServingConfig) -> None:
        self._live = live

    async def serve_next(self, next_config: NextConfig) -> ServingConfig:
        """Take what is wanted next for live."""
        self._live = await next_config({self._live.model: self._live})
        return self._live


class SimulatedPods:
    """Followers for pods, in a thread of their own, until the block ends."""

    def __init__(self, config_map: str, document: bytes) -> None:
        """Follow `config_map`, which said `document` when the pods began."""
        self._config_map = config_map
        self._live = decode_serving_config(document)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._closing: list[Any] = []
        self._tasks: list[asyncio.Task[None]] = []

    def __enter__(self) -> "SimulatedPods":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("mcp2026.runtime.revisions").setLevel(logging.ERROR)  # their API server ends first
        for part in self._closing:
            part.close()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def add(self, pod: Mapping[str, Any], credentials: Mapping[str, Any]) -> None:
        """Follow for `pod`, with what a kubeconfig says."""
        metadata = pod["metadata"]
        identity = PodIdentity(metadata["namespace"], metadata["name"], metadata["uid"])

        def api() -> Any:
            return config.new_client_from_config_dict(dict(credentials))  # type: ignore[no-untyped-call]  # untyped

        core, coordination = client.CoreV1Api(api()), client.CoordinationV1Api(api())
        watch = ConfigMapWatch(core, identity.namespace, self._config_map, self._loop)
        lease = LeaseReport(coordination, identity, self._live.model)
        self._closing += [watch, lease]

        async def follow() -> None:
            mailbox = Newest()
            watch.start(mailbox)
            lease.start()
            follower = Follower(
                self._live.model,
                mailbox,
                _AtOnce(self._live),
                lambda wanted: wanted,
                lambda standing: lease.tell(told_of(standing)),
            )
            await follower.run(self._live.revision)

        async def begin() -> None:
            self._tasks.append(asyncio.create_task(follow()))

        asyncio.run_coroutine_threadsafe(begin(), self._loop).result()
