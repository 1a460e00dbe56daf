"""The loop around `reconcile`: events and lists fill the store, workers take keys and carry actions out."""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from mcp2026.api.names import API_VERSION, INFERENCE_MODEL_KIND, MANAGED_BY
from mcp2026.operator.actions import Action, AnnotatePod, ApplyChild, EmitEvent, RequeueAfter, UpdateStatus
from mcp2026.operator.adapters.api_server import KINDS, ApiServer
from mcp2026.operator.adapters.pod_pages import HttpPodPages
from mcp2026.operator.canary.looking import CanaryLooks
from mcp2026.operator.children.ownership import child_name
from mcp2026.operator.errors import ApiRequestError, OperatorError
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.modes import child_kinds
from mcp2026.operator.observed import Observed
from mcp2026.operator.progress import status_document, timestamp
from mcp2026.operator.reconcile import reconcile
from mcp2026.operator.settings import Settings
from mcp2026.operator.store import ModelKey, Store
from mcp2026.operator.work_queue import WorkQueue

log = logging.getLogger(__name__)

_CONFLICT = 409
_NOT_FOUND = 404
_EVENT_MESSAGE_LIMIT = 1024


class Controller:
    """Keeps every InferenceModel of the watched namespaces as its user asked."""

    def __init__(self, api: ApiServer, settings: Settings) -> None:
        self._api = api
        self._settings = settings
        self._store = Store()
        self._queue: WorkQueue[ModelKey] = WorkQueue()
        self._looks = CanaryLooks(HttpPodPages(), self._queue.add)
        self._listed_at = time.monotonic()

    def heard(self, kind: str, event_type: str | None, seen: Manifest) -> None:
        """Take in one watch event, and queue the models that it concerns."""
        changed = self._store.drop(kind, seen) if event_type == "DELETED" else self._store.put(kind, seen)
        for key in changed:
            self._queue.add(key)

    def seconds_since_list(self) -> float:
        """Return the age of the newest full list, before the first the time since the start, in s.

        It grows without bound if the API server is lost.
        """
        return time.monotonic() - self._listed_at

    async def run(self) -> None:
        """List everything, then work until cancelled."""
        await self._list_all()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._resync_forever())
            for _ in range(self._settings.workers):
                tasks.create_task(self._work_forever())

    async def _resync_forever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.resync_seconds)
            try:
                await self._list_all()
            except OperatorError as error:
                log.warning("the full list failed and is tried again: %s", error)

    async def _list_all(self) -> None:
        for kind in KINDS:
            for namespace in self._settings.namespaces or (None,):
                listed, version = await asyncio.to_thread(self._api.list, kind, namespace)
                self._store.replace(kind, listed, version, namespace)
        self._listed_at = time.monotonic()
        for key in self._store.models():
            self._queue.add(key)

    async def _work_forever(self) -> None:
        while True:
            key = await self._queue.take()
            with self._returned(key):
                await self._reconcile(key)

    @contextmanager
    def _returned(self, key: ModelKey) -> Iterator[None]:
        """Give `key` back to the queue, after a failure with its backoff. No failure ends a worker."""
        try:
            yield
        except ApiRequestError as error:
            delay = self._queue.failed(key)
            level = logging.DEBUG if error.status == _CONFLICT else logging.WARNING
            log.log(level, "model %s/%s is tried again in %.2f s: %s", *key, delay, error)
        except Exception:
            delay = self._queue.failed(key)
            log.exception("model %s/%s is tried again in %.2f s", *key, delay)
        else:
            self._queue.succeeded(key)
        finally:
            self._queue.done(key)

    async def _reconcile(self, key: ModelKey) -> None:
        observed = self._store.observed(key)
        if observed is None:
            self._looks.forget(key)
            return
        observed = replace(observed, comparison=self._looks.comparison(key, observed))
        observed = await self._with_unlabelled_children(key, observed)
        for action in reconcile(observed, datetime.now(UTC), self._settings.pods):
            await self._carry_out(key, observed.resource, action)

    async def _with_unlabelled_children(self, key: ModelKey, observed: Observed) -> Observed:
        """Ask the API server for children that the store lacks: somebody else's carry no label of ours.

        They stay out of the store, since neither events nor lists would ever tell that they are gone.
        """
        if "deletionTimestamp" in observed.resource["metadata"]:
            return observed
        namespace, name = key
        for kind in child_kinds(observed.resource):
            if observed.child(kind) is None:
                found = await asyncio.to_thread(self._api.get, kind, namespace, child_name(kind, name))
                if found is not None:
                    observed = observed.with_child(kind, found)
        return observed

    async def _carry_out(self, key: ModelKey, resource: Manifest, action: Action) -> None:
        match action:
            case ApplyChild(manifest):
                applied = await asyncio.to_thread(self._api.apply, manifest)
                self._store.put(manifest["kind"], applied)
                log.info("applied %s %s/%s", manifest["kind"], key[0], manifest["metadata"]["name"])
            case AnnotatePod(pod, annotation, value):
                annotated = await asyncio.to_thread(self._api.annotate_pod, pod, annotation, value)
                if annotated is not None:
                    self._store.put("Pod", annotated)
            case UpdateStatus(status):
                try:
                    written = await asyncio.to_thread(
                        self._api.patch_status, resource, status_document(status)
                    )
                except ApiRequestError as error:
                    if error.status != _NOT_FOUND:
                        raise
                    self._store.drop(INFERENCE_MODEL_KIND, resource)
                else:
                    self._store.put(INFERENCE_MODEL_KIND, written)
            case EmitEvent():
                await self._tell(key, resource, action)
            case RequeueAfter(seconds):
                self._queue.add_after(key, seconds)

    async def _tell(self, key: ModelKey, resource: Manifest, event: EmitEvent) -> None:
        """Create an Event; one that cannot be created is logged and holds nothing up."""
        log.info("model %s/%s: %s: %s", *key, event.reason, event.message)
        try:
            await asyncio.to_thread(self._api.create_event, _event_manifest(resource, event))
        except OperatorError as error:
            log.warning("event %s for model %s/%s was not created: %s", event.reason, *key, error)


def _event_manifest(resource: Manifest, event: EmitEvent) -> dict[str, Any]:
    metadata = resource["metadata"]
    now = timestamp(datetime.now(UTC))
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": INFERENCE_MODEL_KIND,
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:_EVENT_MESSAGE_LIMIT],
        "source": {"component": MANAGED_BY},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
