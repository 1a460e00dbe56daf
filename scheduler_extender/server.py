"""The HTTP face: verbs for kube-scheduler, health and metrics for everyone else. It translates only.

kube-scheduler takes any status but 200 as a failure of the extender, and the `Error` in the result of filter
or bind as a reason to tell the user. So what is wrong with the caller's bytes gets a 4xx, and what is wrong
with the moment (not synced, filled up) or the pod gets a 200 with an `Error`. prioritize and preempt have no
place for an error: there it is a 503 or 400, and the scheduler goes on without our answer.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from time import monotonic, perf_counter, time

import msgspec
from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from mcp2026.api.gpu_devices import DeviceKind
from mcp2026.scheduler_extender.admitting import Admission
from mcp2026.scheduler_extender.background import Background
from mcp2026.scheduler_extender.binding import Binder
from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.cluster_events import ObservedPod, observed_pod
from mcp2026.scheduler_extender.cluster_map import cluster_map
from mcp2026.scheduler_extender.decision_log import Decision, DecisionLog, ranked_nodes
from mcp2026.scheduler_extender.decisions import filter_result, priority_list
from mcp2026.scheduler_extender.errors import (
    BindingRefusedError,
    BindingUncertainError,
    InvalidQuantityError,
    MalformedRequestError,
    NoRoomError,
    NotLeadingError,
    NotSyncedError,
)
from mcp2026.scheduler_extender.filtering import Filtered, RefusalMemo, filter_nodes
from mcp2026.scheduler_extender.gangs import Gangs
from mcp2026.scheduler_extender.leadership import Alone, Leadership
from mcp2026.scheduler_extender.metrics import Metrics, Outcome
from mcp2026.scheduler_extender.narrowing import best_nodes
from mcp2026.scheduler_extender.policy import Policy, PolicyInForce
from mcp2026.scheduler_extender.preempting import preempt
from mcp2026.scheduler_extender.preferences import Preferences
from mcp2026.scheduler_extender.prioritizing import Ranking, rank_nodes
from mcp2026.scheduler_extender.ranking_ahead import RankingAhead
from mcp2026.scheduler_extender.request import Demand, demands_of
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot
from mcp2026.scheduler_extender.wire import (
    ExtenderArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    decode_args,
    decode_binding,
    decode_preemption,
    encode,
)

log = logging.getLogger(__name__)

FILTER, PRIORITIZE, PREEMPT, BIND = "filter", "prioritize", "preempt", "bind"

MAX_BODY_BYTES = 32 * 2**20
"""A verb's body: 5,000 whole nodes of 6 KiB each."""
AT_HAND_BYTES = 2**20
"""A body up to this is read in the event loop: 5,000 names have 60 KiB, and a thread costs more."""
PAGE = Path(__file__).with_name("map.html").read_bytes()
PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "frame-ancestors 'none'"
)
PODS_REMEMBERED = 10_000
"""Pods between filter and bind; one that is forgotten is read from the API server."""


@dataclass(frozen=True, slots=True)
class _Answered:
    """The body of an answer, how it is counted, and the pod that it is about, if its time is noted."""

    body: bytes
    outcome: Outcome
    uid: str = ""


_Verb = Callable[[bytes], Awaitable[_Answered]]


class ExtenderServer:
    """The handlers, over one cache.

    `problems` tells, as long as there is one, what keeps a kind of object from being read. `choices` is the
    thread that owns `memo`: it makes all decisions that score machines. filter never waits for it. It takes a
    ms, so it is answered in the event loop, but for whole nodes and MIG, which have a thread of their own.
    """

    def __init__(
        self,
        cache: ClusterCache,
        memo: ScoreMemo,
        metrics: Metrics,
        problems: Mapping[str, str],
        choices: Background,
        binder: Binder,
        gangs: Gangs | None = None,
        in_force: PolicyInForce | None = None,
        clock: Callable[[], float] = monotonic,
        leadership: Leadership | None = None,
    ) -> None:
        self._cache = cache
        self._memo = memo
        self._metrics = metrics
        self._problems = problems
        self._choices = choices
        self._filters = Background(FILTER)
        self._binder = binder
        self._gangs = gangs or Gangs(cache)
        self._admission = Admission(self._gangs, memo, choices, clock)
        self._in_force = in_force or PolicyInForce()
        self._clock = clock
        self._leadership = leadership or Alone()
        self._pods: OrderedDict[str, ObservedPod] = OrderedDict()
        self._decisions = DecisionLog()
        self._refusals, self._refusals_in_thread = RefusalMemo(), RefusalMemo()
        self._ahead: RankingAhead[_Ranked] = RankingAhead(clock)
        self._noting: set[asyncio.Task[None]] = set()
        self._closing = False

    def verbs_app(self) -> web.Application:
        """Return the application that serves the verbs, health and metrics."""
        app = self.health_app()
        app.router.add_get("/", self._page)
        app.router.add_get("/v1/cluster", self._cluster)
        app.router.add_get("/v1/decisions", self._all_decisions)
        app.router.add_get("/v1/decisions/{namespace}/{pod}", self._decisions_of_pod)
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
        large = len(body) > AT_HAND_BYTES
        args = await self._filters.call(decode_args, body) if large else decode_args(body)
        demands = demands_of(args.spec)
        pod = observed_pod(args.pod)
        if problem := self._binder.is_bound(pod):
            raise NoRoomError(problem)
        self._gangs.asked_anew(args.key, self._clock())
        preferences = Preferences.of(pod, self._in_force.policy)
        said = ""
        if pod.gang is not None and demands:
            self._snapshot()
            verdict = await self._admission.admit(pod, args.node_names, preferences)
            filtered, said = verdict.filtered, verdict.said
            answer = await self._filters.call(encode, filter_result(filtered, args))
        elif large or any(demand.kind is DeviceKind.MIG for demand in demands):
            filtered, answer = await self._filters.call(
                _filter, self._snapshot(), args, demands, self._refusals_in_thread
            )
        else:
            filtered, answer = _filter(self._snapshot(), args, demands, self._refusals)
        handed_on = await self._handed_on(filtered.feasible, pod, demands, preferences)
        if handed_on is not filtered.feasible:
            answer = encode(filter_result(replace(filtered, feasible=handed_on), args))
        if demands and len(handed_on) > 1:
            self._ahead.begin(
                body,
                handed_on,
                partial(
                    self._choices.call,
                    _ranked,
                    pod.uid,
                    handed_on,
                    demands,
                    self._snapshot(),
                    self._memo,
                    preferences,
                ),
            )
        self._remember(pod)
        self._decisions.filtered(args.key, pod.uid, demands, filtered, time(), preferences, said)
        log.debug("filter %s: %d of %d nodes fit", args.key, len(filtered.feasible), len(args.node_names))
        return _Answered(answer, Outcome.FITS if filtered.feasible else Outcome.NOTHING_FITS, pod.uid)

    async def _handed_on(
        self,
        feasible: tuple[str, ...],
        pod: ObservedPod,
        demands: tuple[Demand, ...],
        preferences: Preferences,
    ) -> tuple[str, ...]:
        """Return the best of the nodes that fit, where the policy says how many; a gang's are planned."""
        most = self._in_force.policy.nodes_to_score
        if most is None or not demands or pod.gang is not None or len(feasible) <= most:
            return feasible
        snapshot = self._snapshot()
        ranking = await self._choices.call(rank_nodes, snapshot, feasible, demands, self._memo, preferences)
        return best_nodes(ranking, most, pod.uid)

    async def _prioritize(self, body: bytes) -> _Answered:
        policy, snapshot = self._in_force.policy, self._snapshot()
        begun = self._ahead.take(body)
        ranked = await (begun or self._choices.call(_rank, body, snapshot, self._memo, policy))
        noting = asyncio.create_task(self._note_ranking(ranked))
        self._noting.add(noting)
        noting.add_done_callback(self._noting.discard)
        return _Answered(ranked.answer, Outcome.RANKED, ranked.uid)

    async def _note_ranking(self, ranked: "_Ranked") -> None:
        """Write down how nodes were ranked: after the answer, which nobody then waits for."""
        shown = await self._choices.call(
            ranked_nodes, ranked.ranking, ranked.demands, self._memo, ranked.preferences
        )
        self._decisions.ranked(ranked.uid, shown, time())

    async def _preempt(self, body: bytes) -> _Answered:
        args = await self._choices.call(decode_preemption, body)
        demands = demands_of(args.spec)
        victims = await self._choices.call(preempt, self._snapshot(), args, demands, self._memo)
        helped = len(victims)
        by_node = {node: tuple(pod.uid for pod in chosen.pods) for node, chosen in victims.items()}
        self._decisions.preempted(args.pod.metadata.uid, by_node, time())
        log.info(
            "preempt for %s/%s: on %d of %d nodes evicting pods helps",
            args.pod.metadata.namespace,
            args.pod.metadata.name,
            helped,
            len(args.proposed),
        )
        outcome = Outcome.FITS if helped else Outcome.NOTHING_FITS
        return _Answered(encode(ExtenderPreemptionResult(victims)), outcome)

    async def _bind(self, body: bytes) -> _Answered:
        args = decode_binding(body)
        self._snapshot()
        where = f"{args.namespace}/{args.name} to {args.node}"
        try:
            reserved = await self._binder.bind(args, self._pods.pop(args.uid, None))
        except (NoRoomError, BindingRefusedError, BindingUncertainError) as error:
            log.warning("not bound, or not known: %s: %s", where, error)
            self._decisions.bound(args.uid, args.node, {}, str(error), time())
            outcome = Outcome.NOTHING_FITS if isinstance(error, NoRoomError) else Outcome.REFUSED
            return _Answered(encode(ExtenderBindingResult(str(error))), outcome)
        log.info("bound %s", where, extra={"devices": reserved})
        self._decisions.bound(args.uid, args.node, reserved, "", time())
        return _Answered(encode(ExtenderBindingResult()), Outcome.BOUND)

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
            response, outcome, uid = await _respond(verb, self._if_leading(answer), body)
            seconds = perf_counter() - started
            self._metrics.decisions.labels(verb, outcome).inc()
            self._metrics.latency.labels(verb).observe(seconds)
            if uid:
                self._decisions.took(uid, **{f"{verb}_ms": round(seconds * 1e3, 3)})
            return response

        return handle

    def _if_leading(self, answer: _Verb) -> _Verb:
        async def answer_if_leading(body: bytes) -> _Answered:
            self._leadership.term()
            return await answer(body)

        return answer_if_leading

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._closing:
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text="closing\n")
        try:
            self._snapshot()
        except NotSyncedError as error:
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=f"{error}\n")
        standing = self._leadership.standing()
        status = HTTPStatus.OK if standing.leads or not standing.asked else HTTPStatus.SERVICE_UNAVAILABLE
        return web.Response(status=status, text=f"{standing.words or 'ok'}\n")

    async def _page(self, _: web.Request) -> web.Response:
        headers = {"Content-Security-Policy": PAGE_POLICY}
        return web.Response(body=PAGE, content_type="text/html", charset="utf-8", headers=headers)

    async def _cluster(self, _: web.Request) -> web.Response:
        try:
            snapshot = self._snapshot()
        except NotSyncedError as error:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        rows = await self._filters.call(cluster_map, snapshot)
        return web.Response(body=msgspec.json.encode(rows), content_type="application/json")

    async def _all_decisions(self, _: web.Request) -> web.Response:
        return _json(self._decisions.latest())

    async def _decisions_of_pod(self, request: web.Request) -> web.Response:
        pod = f"{request.match_info['namespace']}/{request.match_info['pod']}"
        return _json(self._decisions.of_pod(pod))

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        page = generate_latest(self._metrics.registry)
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _filter(
    snapshot: ClusterSnapshot, args: ExtenderArgs, demands: tuple[Demand, ...], refusals: RefusalMemo
) -> tuple[Filtered, bytes]:
    filtered = filter_nodes(snapshot, args.node_names, demands, refusals)
    return filtered, encode(filter_result(filtered, args))


@dataclass(frozen=True, slots=True)
class _Ranked:
    uid: str
    demands: tuple[Demand, ...]
    preferences: Preferences
    ranking: Ranking
    answer: bytes


def _rank(body: bytes, snapshot: ClusterSnapshot, memo: ScoreMemo, policy: Policy) -> _Ranked:
    args = decode_args(body)
    demands = demands_of(args.spec)
    preferences = Preferences.of(observed_pod(args.pod), policy)
    return _ranked(args.pod.metadata.uid, args.node_names, demands, snapshot, memo, preferences)


def _ranked(
    uid: str,
    node_names: tuple[str, ...],
    demands: tuple[Demand, ...],
    snapshot: ClusterSnapshot,
    memo: ScoreMemo,
    preferences: Preferences,
) -> _Ranked:
    ranking = rank_nodes(snapshot, node_names, demands, memo, preferences)
    return _Ranked(uid, demands, preferences, ranking, encode(priority_list(ranking)))


async def _respond(verb: str, answer: _Verb, body: bytes) -> tuple[web.Response, Outcome, str]:
    try:
        answered = await answer(body)
    except MalformedRequestError as error:
        return _error(HTTPStatus.BAD_REQUEST, str(error)), Outcome.MALFORMED, ""
    except NoRoomError as error:
        return _refusal(verb, HTTPStatus.SERVICE_UNAVAILABLE, str(error)), Outcome.NOTHING_FITS, ""
    except NotSyncedError as error:
        return _refusal(verb, HTTPStatus.SERVICE_UNAVAILABLE, str(error)), Outcome.NOT_SYNCED, ""
    except NotLeadingError as error:
        response = _refusal(verb, HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        response.force_close()  # a caller that comes through a Service reaches the leader by a new connection
        return response, Outcome.STANDING_BY, ""
    except InvalidQuantityError as error:
        return _refusal(verb, HTTPStatus.BAD_REQUEST, str(error)), Outcome.MALFORMED, ""
    except Exception:
        log.exception("%s failed", verb)
        reason = "a defect of the scheduler extender; its log tells more"
        return _error(HTTPStatus.INTERNAL_SERVER_ERROR, reason), Outcome.FAILED, ""
    response = web.Response(body=answered.body, content_type="application/json")
    return response, answered.outcome, answered.uid


def _json(decisions: tuple[Decision, ...]) -> web.Response:
    return web.Response(body=msgspec.json.encode(decisions), content_type="application/json")


def _refusal(verb: str, status: HTTPStatus, reason: str) -> web.Response:
    """Return `reason` where the scheduler will show it to the user, else as an error with `status`."""
    if verb == FILTER:
        return web.Response(body=encode(ExtenderFilterResult(error=reason)), content_type="application/json")
    if verb == BIND:
        return web.Response(body=encode(ExtenderBindingResult(reason)), content_type="application/json")
    return _error(status, reason)


def _error(status: HTTPStatus, reason: str) -> web.Response:
    return web.Response(status=status, body=encode({"Error": reason}), content_type="application/json")
