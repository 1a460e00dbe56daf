"""Keeps the cache in step with the API server: one list-and-watch for each kind, for as long as we live.

The requests and their order are `watching.ListWatch`'s; here are the sockets, the pauses and the credentials.
The client's own informer is not used: it asks for no bookmarks, reconnects without a pause, does not tell
when it is in step, and decodes whole objects of which we read five fields.
"""

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from pathlib import Path

import aiohttp
import msgspec
from kubernetes.aio import client, config

from mcp2026.api.names import API_VERSION, GPU_TOPOLOGY_PLURAL
from mcp2026.scheduler_extender.cluster_events import ClusterEvent, Kind, Listed
from mcp2026.scheduler_extender.errors import NoClusterError, WatchExpiredError, WatchRefusedError
from mcp2026.scheduler_extender.watching import ListWatch, Request

log = logging.getLogger(__name__)

PATHS = {
    Kind.NODES: "/api/v1/nodes",
    Kind.PODS: "/api/v1/pods",
    Kind.BUDGETS: "/apis/policy/v1/poddisruptionbudgets",
    Kind.GPU_TOPOLOGIES: f"/apis/{API_VERSION}/{GPU_TOPOLOGY_PLURAL}",
}
SELECTORS = {Kind.PODS: "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}
"""Pods that are bound and live; one that ends or is deleted leaves the selection as DELETED."""

WATCH_SECONDS = (240, 480)
"""A watch ends by itself within this range, chosen at random, so that restarts do not come together."""
SILENCE_SECONDS = 150
"""Bookmarks come about every minute: a watch silent for longer has lost its server."""
LIST_SECONDS = 60
CONNECT_SECONDS = 10
CONNECTIONS = 16
"""To the API server, for each client. A hundred bindings at once by as many handshakes would take longer."""
SHORTEST_WATCH_SECONDS = 1.0
"""A watch that ends sooner counts as broken, so that we never spin."""
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0


async def cluster_configuration(kubeconfig: Path | None) -> client.Configuration:
    """Return where the API server is and how to speak to it.

    Raises:
        NoClusterError: the kubeconfig or the service account cannot be read.

    """
    configuration = client.Configuration(connection_pool_maxsize=CONNECTIONS)
    try:
        if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # untyped
        else:
            await config.load_kube_config(  # type: ignore[no-untyped-call]  # untyped
                config_file=None if kubeconfig is None else str(kubeconfig),
                client_configuration=configuration,
                persist_config=False,
            )
    except Exception as error:  # a file of another shape makes the client stumble anyhow
        raise NoClusterError(
            f"no way to an API server: {error}; give --kubeconfig, or run in a pod with a service account"
        ) from error
    return configuration


class ClusterWatch:
    """Feeds `sink` with what happens to nodes, pods and GPU topologies; `on_break` counts interruptions."""

    def __init__(
        self,
        configuration: client.Configuration,
        sink: Callable[[ClusterEvent], None],
        on_break: Callable[[Kind], None],
    ) -> None:
        self._configuration = configuration
        self._sink = sink
        self._on_break = on_break
        self.problems: dict[str, str] = {}
        """By kind: why it cannot be read at the moment."""
        self._relisting: dict[Kind, list[asyncio.Event]] = {kind: [] for kind in Kind}
        """Of each kind: set when the next list has been taken."""
        self._watched: dict[Kind, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follow all kinds until cancelled. Outages of the API server are waited out."""
        async with client.ApiClient(self._configuration) as api, asyncio.TaskGroup() as kinds:
            for kind in Kind:
                kinds.create_task(self._follow_anew(api, kind), name=kind)

    async def relist(self, kind: Kind) -> None:
        """Return when the sink has taken a list of `kind` that was begun after this call."""
        listed = asyncio.Event()
        self._relisting[kind].append(listed)
        if kind in self._watched:
            self._watched[kind].cancel()  # with the list that it may be taking: that was begun before
        await listed.wait()

    async def _follow_anew(self, api: client.ApiClient, kind: Kind) -> None:
        """Follow `kind`, and begin with a list anew whenever `relist` asks for it."""
        while True:
            following = asyncio.create_task(self._follow(api, ListWatch(kind, SELECTORS.get(kind, ""))))
            self._watched[kind] = following
            try:
                await asyncio.wait((following,))
            finally:
                following.cancel()
                await asyncio.wait((following,))
            if not following.cancelled():
                following.result()

    async def _follow(self, api: client.ApiClient, listwatch: ListWatch) -> None:
        clock = asyncio.get_running_loop().time
        kind = listwatch.kind
        pause = FIRST_PAUSE_SECONDS
        while True:
            request = listwatch.next_request(random.randint(*WATCH_SECONDS))
            started = clock()
            try:
                async for event in self._events(api, listwatch, request):
                    self._sink(event)
                    if isinstance(event, Listed):
                        self._tell_relisted(kind)
                if self.problems.pop(kind, None):
                    log.info("reading %s again", kind)
                lasted = clock() - started
                if not request.watch or lasted >= SHORTEST_WATCH_SECONDS:
                    pause = FIRST_PAUSE_SECONDS
                    continue
            except WatchExpiredError as error:
                log.info("the history of %s has expired, listing again: %s", kind, error)
                self._on_break(kind)
            except msgspec.DecodeError as error:
                if not request.watch:
                    listwatch.restart()
                self._broken(kind, f"an answer that is no {kind}: {error}")
            except (WatchRefusedError, aiohttp.ClientError, OSError, ValueError) as error:
                self._broken(kind, str(error) or type(error).__name__)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _tell_relisted(self, kind: Kind) -> None:
        for listed in self._relisting[kind]:
            listed.set()
        self._relisting[kind].clear()

    def _broken(self, kind: Kind, problem: str) -> None:
        if self.problems.get(kind) != problem:
            log.warning("cannot read %s: %s", kind, problem)
        self.problems[kind] = problem
        self._on_break(kind)

    async def _events(
        self, api: client.ApiClient, listwatch: ListWatch, request: Request
    ) -> AsyncIterator[ClusterEvent]:
        async with await self._send(api, listwatch.kind, request) as response:
            if response.status != HTTPStatus.OK:
                listwatch.refuse(response.status, _explain(response.status, await response.text()))
            if not request.watch:
                listed = listwatch.receive_page(await response.read())
                if listed is not None:
                    log.info("listed %s: %d objects", listwatch.kind, len(listed.objects))
                    yield listed
                return
            async for line in response.content:
                self.problems.pop(listwatch.kind, None)
                event = listwatch.receive_line(line)
                if event is not None:
                    yield event

    async def _send(self, api: client.ApiClient, kind: Kind, request: Request) -> aiohttp.ClientResponse:
        """Send `request`; the client refreshes a service account's token by itself."""
        method, url, headers, _, _ = await api.param_serialize(
            "GET",
            PATHS[kind],
            query_params=list(request.query),
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        timeout = aiohttp.ClientTimeout(
            total=None if request.watch else LIST_SECONDS,
            sock_connect=CONNECT_SECONDS,
            sock_read=SILENCE_SECONDS,
        )
        answer = await api.call_api(method, url, headers, _request_timeout=timeout)
        response: aiohttp.ClientResponse = answer.response
        return response


def _explain(status: int, body: str) -> str:
    """Return the message of a Kubernetes Status, with advice where we have some."""
    try:
        message = str(msgspec.json.decode(body, type=dict[str, object]).get("message", body))
    except msgspec.DecodeError:
        message = body[:200]
    if status == HTTPStatus.NOT_FOUND:
        return f"{message}: is the custom resource definition installed?"
    if status == HTTPStatus.FORBIDDEN:
        return f"{message}: the service account needs get, list and watch"
    return message
