"""The HTTP face: verbs for kube-scheduler, health and metrics for everyone else. It translates only.

kube-scheduler takes any status but 200 as a failure of the extender, and the `Error` in the result of filter
or bind as a reason to tell the user. So what is wrong with the caller's bytes gets a 4xx, and what is wrong
with the moment (not synced, filled up) or the pod gets a 200 with an `Error`. prioritize and preempt have no
place for an error: there it is a 503 or 400, and the scheduler goes on without our answer.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from time import perf_counter

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from mcp2026.scheduler_extender.background import Background
from mcp2026.scheduler_extender.binding import Binder
from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.cluster_events import ObservedPod, observed_pod
from mcp2026.scheduler_extender.decisions import decide_filter, decide_preempt, decide_prioritize
from mcp2026.scheduler_extender.errors import (
    BindingRefusedError,
    BindingUncertainError,
    InvalidQuantityError,
    MalformedRequestError,
    NoRoomError,
    NotSyncedError,
)
from mcp2026.scheduler_extender.metrics import Metrics, Outcome
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot
from mcp2026.scheduler_extender.wire import (
    ExtenderBindingResult,
    ExtenderFilterResult,
    HostPriorityList,
    decode_args,
    decode_binding,
    decode_preemption,
    encode,
)

log = logging.getLogger(__name__)

FILTER, PRIORITIZE, PREEMPT, BIND = "filter", "prioritize", "preempt", "bind"

MAX_BODY_BYTES = 32 * 2**20
"""A verb's body: 5,000 whole nodes of 6 KiB each."""
PODS_REMEMBERED = 10_000
"""Pods between filter and bind; one that is forgotten is read from the API server."""

_Answered = tuple[bytes, Outcome]
_Verb = Callable[[bytes], Awaitable[_Answered]]


class ExtenderServer:
    """The handlers, over one cache.

    `problems` tells, as long as there is one, what keeps a kind of object from being read. Decisions are made
    in threads beside the event loop: filter in one of its own, so that it never waits while prioritize or
    preempt score machines that they have not met before; `choices` is the thread that owns `memo`.
    """

    def __init__(
        self,
        cache: ClusterCache,
        memo: ScoreMemo,
        metrics: Metrics,
        problems: Mapping[str, str],
        choices: Background,
        binder: Binder,
    ) -> None:
        self._cache = cache
        self._memo = memo
        self._metrics = metrics
        self._problems = problems
        self._choices = choices
        self._filters = Background(FILTER)
        self._binder = binder
        self._pods: OrderedDict[str, ObservedPod] = OrderedDict()
        self._closing = False

    def verbs_app(self) -> web.Application:
        """Return the application that serves the verbs, health and metrics."""
        app = self.health_app()
        verbs: dict[str, _Verb] = {
            FILTER: self._filter,
            PRIORITIZE: self._prioritize,
            PREEMPT: self._preempt,
            BIND: self._bind,
        }
        for verb, answer in verbs.items():
            app.router.add_post(f"/v1/{verb}", self._handler(verb, answer))
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
        self._filters.close()

    # ---- the verbs ----

    async def _filter(self, body: bytes) -> _Answered:
        args = await self._filters.call(decode_args, body)
        if self._cache.is_assumed(args.key):
            self._cache.release(args.key)  # what is asked about anew was not bound
        snapshot = self._snapshot()
        result = await self._filters.call(decide_filter, snapshot, args)
        self._remember(observed_pod(args.pod))
        fits = len(args.node_names) - len(result.failed_nodes) - len(result.failed_and_unresolvable_nodes)
        log.debug("filter %s: %d of %d nodes fit", args.key, fits, len(args.node_names))
        return encode(result), Outcome.FITS if fits else Outcome.NOTHING_FITS

    async def _prioritize(self, body: bytes) -> _Answered:
        ranks = await self._choices.call(_ranks, body, self._snapshot(), self._memo)
        return encode(ranks), Outcome.RANKED

    async def _preempt(self, body: bytes) -> _Answered:
        args = await self._choices.call(decode_preemption, body)
        result = await self._choices.call(decide_preempt, self._snapshot(), args, self._memo)
        helped = len(result.node_name_to_meta_victims)
        log.info(
            "preempt for %s/%s: on %d of %d nodes evicting pods helps",
            args.pod.metadata.namespace,
            args.pod.metadata.name,
            helped,
            len(args.proposed),
        )
        return encode(result), Outcome.FITS if helped else Outcome.NOTHING_FITS

    async def _bind(self, body: bytes) -> _Answered:
        args = decode_binding(body)
        self._snapshot()
        where = f"{args.namespace}/{args.name} to {args.node}"
        try:
            reserved = await self._binder.bind(args, self._pods.pop(args.uid, None))
        except NoRoomError as error:
            log.info("not bound: %s: %s", where, error)
            return encode(ExtenderBindingResult(str(error))), Outcome.NOTHING_FITS
        except (BindingRefusedError, BindingUncertainError) as error:
            log.warning("not bound, or not known: %s: %s", where, error)
            return encode(ExtenderBindingResult(str(error))), Outcome.REFUSED
        log.info("bound %s", where, extra={"devices": reserved})
        return encode(ExtenderBindingResult()), Outcome.BOUND

    def _remember(self, pod: ObservedPod) -> None:
        self._pods[pod.uid] = pod
        self._pods.move_to_end(pod.uid)
        if len(self._pods) > PODS_REMEMBERED:
            self._pods.popitem(last=False)

    def _snapshot(self) -> ClusterSnapshot:
        """Return the cluster as it is now.

        Raises:
            NotSyncedError: it was not read whole yet.

        """
        if waiting_for := self._cache.waiting_for:
            raise NotSyncedError(waiting_for, self._problems)
        return self._cache.snapshot()

    # ---- from requests to verbs, and from errors to responses ----

    def _handler(self, verb: str, answer: _Verb) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            try:
                body = await request.read()
            except web.HTTPRequestEntityTooLarge:
                self._metrics.decisions.labels(verb, Outcome.MALFORMED).inc()
                limit = f"the body is over {MAX_BODY_BYTES} bytes; set nodeCacheCapable: true"
                return _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, limit)
            started = perf_counter()
            response, outcome = await _respond(verb, answer, body)
            self._metrics.decisions.labels(verb, outcome).inc()
            self._metrics.latency.labels(verb).observe(perf_counter() - started)
            return response

        return handle

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._closing:
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text="closing\n")
        try:
            self._snapshot()
        except NotSyncedError as error:
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=f"{error}\n")
        return web.Response(text="ok\n")

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        page = generate_latest(self._metrics.registry)
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _ranks(body: bytes, snapshot: ClusterSnapshot, memo: ScoreMemo) -> HostPriorityList:
    return decide_prioritize(snapshot, decode_args(body), memo)


async def _respond(verb: str, answer: _Verb, body: bytes) -> tuple[web.Response, Outcome]:
    try:
        content, outcome = await answer(body)
        return web.Response(body=content, content_type="application/json"), outcome
    except MalformedRequestError as error:
        return _error(HTTPStatus.BAD_REQUEST, str(error)), Outcome.MALFORMED
    except NotSyncedError as error:
        return _refusal(verb, HTTPStatus.SERVICE_UNAVAILABLE, str(error)), Outcome.NOT_SYNCED
    except InvalidQuantityError as error:
        return _refusal(verb, HTTPStatus.BAD_REQUEST, str(error)), Outcome.MALFORMED
    except Exception:
        log.exception("%s failed", verb)
        reason = "a defect of the scheduler extender; its log tells more"
        return _error(HTTPStatus.INTERNAL_SERVER_ERROR, reason), Outcome.FAILED


def _refusal(verb: str, status: HTTPStatus, reason: str) -> web.Response:
    """Return `reason` where the scheduler will show it to the user, else as an error with `status`."""
    if verb == FILTER:
        return web.Response(body=encode(ExtenderFilterResult(error=reason)), content_type="application/json")
    if verb == BIND:
        return web.Response(body=encode(ExtenderBindingResult(reason)), content_type="application/json")
    return _error(status, reason)


def _error(status: HTTPStatus, reason: str) -> web.Response:
    return web.Response(status=status, body=encode({"Error": reason}), content_type="application/json")
