"""Who is looked at, for which step, and when: at the ready pods of a model whose canary is in progress."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.inference_model import parse_inference_model
from mcp2026.api.names import REST_PORT
from mcp2026.operator.canary.comparison import Comparison
from mcp2026.operator.canary.deciding import is_measured
from mcp2026.operator.canary.exposition import UnreadableMetricsError, read_counts
from mcp2026.operator.canary.measurements import Measurements, Pod, Seen, Step
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import Observed, at, is_ready, staying
from mcp2026.operator.store import ModelKey

log = logging.getLogger(__name__)


class PodPages(Protocol):
    """Gets a page from each of many pods."""

    async def read(self, urls: Sequence[str]) -> list[str | None]:
        """Return the page at each URL in order, None where there was no good answer in time."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a look is for, and whom it asks."""

    step: Step
    model: str
    urls: Mapping[Pod, str]


def look_at(observed: Observed) -> Look | None:
    """Return whom to ask; None unless a step of a canary is in progress, with its weights live."""
    if at(observed.resource, "spec", "canary") is None:
        return None
    try:
        model = parse_inference_model(observed.resource)
    except InvalidResourceError:
        return None
    canary = model.canary
    if canary is None or not is_measured(canary) or model.spec.stopped:
        return None
    ready = (pod for pod in staying(observed.pods) if is_ready(pod) and at(pod, "status", "podIP"))
    return Look(
        Step(model.uid, canary.plan, canary.step, canary.since),
        model.name,
        {_run_of(pod): _metrics_url(pod) for pod in ready},
    )


def _run_of(pod: Manifest) -> Pod:
    containers = at(pod, "status", "containerStatuses") or []
    restarts = sum(int(container.get("restartCount", 0)) for container in containers)
    return Pod(pod["metadata"]["name"], pod["metadata"]["uid"], restarts)


def _metrics_url(pod: Manifest) -> str:
    address = str(at(pod, "status", "podIP"))
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{REST_PORT}/metrics"


class CanaryLooks:
    """Looks at pods in the background, so that a pod that does not answer holds no other model up.

    `news` is called with the key of a model when a look at it is over.
    """

    def __init__(self, pages: PodPages, news: Callable[[ModelKey], None]) -> None:
        self._pages = pages
        self._news = news
        self._measurements = Measurements()
        self._running: set[asyncio.Task[Any]] = set()

    def comparison(self, key: ModelKey, observed: Observed) -> Comparison:
        """Return what is known by now, and begin the next look if it is time."""
        look = look_at(observed)
        if look is None:
            self._measurements.forget(key)
            return Comparison()
        now = time.monotonic()
        if self._measurements.begin_look(key, look.step, now):
            running = asyncio.create_task(self._look(key, look))
            self._running.add(running)
            running.add_done_callback(self._running.discard)
        return self._measurements.comparison(key, look.step, now)

    def forget(self, key: ModelKey) -> None:
        """Forget a model that is gone."""
        self._measurements.forget(key)

    async def _look(self, key: ModelKey, look: Look) -> None:
        pages = await self._pages.read(list(look.urls.values()))
        self._measurements.take(key, look.step, answers(look, pages))
        self._news(key)


def answers(look: Look, pages: Sequence[str | None]) -> dict[Pod, Seen | None]:
    """Return what each pod has counted, given their pages in order; None for those that have no good one."""
    return {pod: _counts(page, look.model, pod.name) for pod, page in zip(look.urls, pages, strict=True)}


def _counts(page: str | None, model: str, pod: str) -> Seen | None:
    if page is None:
        return None
    try:
        return read_counts(page, model)
    except UnreadableMetricsError as error:
        log.warning("the metrics of pod %s cannot be read: %s", pod, error)
        return None
