"""The HTTP face: verbs for kube-scheduler, health and metrics for everyone else. It translates only.

kube-scheduler takes any status but 200 as a failure of the extender, and the text in a filter result's
`Error` as a reason to tell the user. So what is wrong with the caller's bytes gets a 4xx, and what is wrong
with the moment (not synced) or the pod gets a 200 with an `Error`. prioritize has no place for an error:
there it is a 503 or 400, and the scheduler goes on without our scores.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from time import perf_counter

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.decisions import decide_filter, decide_prioritize
from mcp2026.scheduler_extender.errors import (
    InvalidQuantityError,
    MalformedRequestError,
    NotSyncedError,
)
from mcp2026.scheduler_extender.metrics import Metrics, Outcome
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot
from mcp2026.scheduler_extender.wire import (
    ExtenderArgs,
    ExtenderFilterResult,
    HostPriorityList,
    decode_args,
    encode,
)

log = logging.getLogger(__name__)

FILTER = "filter"
PRIORITIZE = "prioritize"

MAX_BODY_BYTES = 32 * 2**20
"""A verb's body: 5,000 whole nodes of 6 KiB each."""

_Decided = tuple[ExtenderFilterResult | HostPriorityList, Outcome]
_Decide = Callable[[ClusterSnapshot, ExtenderArgs], _Decided]


class ExtenderServer:
    """The handlers, over one cache.

    `problems` tells, as long as there is one, what keeps a kind of object from being read. Decisions are
    made in one thread for each verb, beside the event loop, so that neither filter nor health has to wait
    while prioritize scores machines that it has not met before.
    """

    def __init__(
        self, cache: ClusterCache, memo: ScoreMemo, metrics: Metrics, problems: Mapping[str, str]
    ) -> None:
        self._cache = cache
        self._memo = memo
        self._metrics = metrics
        self._problems = problems
        self._threads = {
            verb: ThreadPoolExecutor(max_workers=1, thread_name_prefix=verb) for verb in (FILTER, PRIORITIZE)
        }
        self._closing = False

    def verbs_app(self) -> web.Application:
        """Return the application that serves the verbs, health and metrics."""
        app = self.health_app()
        app.router.add_post("/v1/filter", self._filter)
        app.router.add_post("/v1/prioritize", self._prioritize)
        return app

    def health_app(self) -> web.Application:
        """Return the application that serves health and metrics alone."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._serve_metrics)
        return app

    def begin_closing(self) -> None:
        """Be unready from now on; verbs are still served."""
        self._closing = True

    def close(self) -> None:
        """Let the decisions being made end, and make no more."""
        for thread in self._threads.values():
            thread.shutdown(wait=True)

    async def _filter(self, request: web.Request) -> web.Response:
        return await self._answer(request, FILTER, self._decide_filter)

    async def _prioritize(self, request: web.Request) -> web.Response:
        return await self._answer(request, PRIORITIZE, self._decide_prioritize)

    def _decide_filter(self, snapshot: ClusterSnapshot, args: ExtenderArgs) -> _Decided:
        result = decide_filter(snapshot, args)
        fits = len(args.node_names) - len(result.failed_nodes) - len(result.failed_and_unresolvable_nodes)
        log.debug("filter %s/%s: %d of %d nodes fit", args.namespace, args.name, fits, len(args.node_names))
        return result, Outcome.FITS if fits else Outcome.NOTHING_FITS

    def _decide_prioritize(self, snapshot: ClusterSnapshot, args: ExtenderArgs) -> _Decided:
        return decide_prioritize(snapshot, args, self._memo), Outcome.RANKED

    async def _answer(self, request: web.Request, verb: str, decide: _Decide) -> web.Response:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            self._metrics.decisions.labels(verb, Outcome.MALFORMED).inc()
            limit = f"the body is over {MAX_BODY_BYTES} bytes; set nodeCacheCapable: true"
            return _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, limit)
        started = perf_counter()
        try:
            answer, outcome = await asyncio.get_running_loop().run_in_executor(
                self._threads[verb], _decide_bytes, body, self._snapshot_or_reason(), decide
            )
            response = web.Response(body=answer, content_type="application/json")
        except MalformedRequestError as error:
            outcome, response = Outcome.MALFORMED, _error(HTTPStatus.BAD_REQUEST, str(error))
        except NotSyncedError as error:
            outcome = Outcome.NOT_SYNCED
            response = _refusal(verb, HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except InvalidQuantityError as error:
            outcome, response = Outcome.MALFORMED, _refusal(verb, HTTPStatus.BAD_REQUEST, str(error))
        except Exception:
            log.exception("%s failed", verb)
            outcome = Outcome.FAILED
            response = _error(
                HTTPStatus.INTERNAL_SERVER_ERROR, "a defect of the scheduler extender; its log tells more"
            )
        self._metrics.decisions.labels(verb, outcome).inc()
        self._metrics.latency.labels(verb).observe(perf_counter() - started)
        return response

    def _snapshot_or_reason(self) -> ClusterSnapshot | NotSyncedError:
        waiting_for = self._cache.waiting_for
        return NotSyncedError(waiting_for, self._problems) if waiting_for else self._cache.snapshot()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._closing:
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text="closing\n")
        state = self._snapshot_or_reason()
        if isinstance(state, NotSyncedError):
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=f"{state}\n")
        return web.Response(text="ok\n")

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        page = generate_latest(self._metrics.registry)
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _decide_bytes(
    body: bytes, state: ClusterSnapshot | NotSyncedError, decide: _Decide
) -> tuple[bytes, Outcome]:
    args = decode_args(body)
    if isinstance(state, NotSyncedError):
        raise state
    result, outcome = decide(state, args)
    return encode(result), outcome


def _refusal(verb: str, status: HTTPStatus, reason: str) -> web.Response:
    """Return `reason` where the scheduler will show it to the user, else as an error with `status`."""
    if verb == FILTER:
        return web.Response(body=encode(ExtenderFilterResult(error=reason)), content_type="application/json")
    return _error(status, reason)


def _error(status: HTTPStatus, reason: str) -> web.Response:
    return web.Response(status=status, body=encode({"Error": reason}), content_type="application/json")
