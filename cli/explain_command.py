"""`mcp2026 explain pod/NAME`: asks the scheduler extender, through the API server, what it decided."""

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from mcp2026.api.names import EXTENDER_PORT, SCHEDULER_NAME
from mcp2026.cli.api_server import api_server
from mcp2026.cli.errors import CommandError
from mcp2026.cli.explain_text import explanation
from mcp2026.scheduler_extender.decision_log import DECISIONS_KEPT, Decision

TIMEOUT_SECONDS = 10
SCHEDULER_PODS = "app.kubernetes.io/part-of=mcp2026,app.kubernetes.io/component=scheduler"


def explain(pod: str, namespace: str, extender: str | None, *, as_json: bool) -> str:
    """Return what was decided for `pod` (``pod/NAME`` or ``NAME``).

    `extender` is the URL of the verbs; None: the scheduler's pods are found by their labels and reached by a
    port-forward.

    Raises:
        CommandError: nobody can be asked, or nobody knows the pod.

    """
    name = pod.removeprefix("pod/").removeprefix("pods/")
    if not name or "/" in name:
        raise CommandError(f"{pod}: allowed: pod/NAME, with the namespace in --namespace")
    path = f"/v1/decisions/{quote(namespace)}/{quote(name)}"
    answers = [_get(extender, path)] if extender else list(_ask_pods(path))
    decisions = [decision for answer in answers for decision in _decoded(answer)]
    if not decisions:
        raise CommandError(
            f"the scheduler extender knows nothing of {namespace}/{name}: it is asked about pods alone that "
            f"have schedulerName {SCHEDULER_NAME} and ask for GPUs, and keeps the last {DECISIONS_KEPT} "
            "since it started"
        )
    latest = max(decisions, key=lambda decision: decision.at)
    if as_json:
        return json.dumps(msgspec.to_builtins(latest), indent=2)
    return explanation(latest)


def _decoded(answer: bytes) -> tuple[Decision, ...]:
    try:
        return msgspec.json.decode(answer, type=tuple[Decision, ...])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"what answers is no scheduler extender of this version: {error}") from error


def _get(url: str, path: str) -> bytes:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise CommandError(f"--extender {url}: allowed: http://HOST:PORT")
    connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=TIMEOUT_SECONDS)
    try:
        return _body_of(connection, path)
    except OSError as error:
        raise CommandError(f"--extender {url}: {error}") from error
    finally:
        connection.close()


def _body_of(connection: http.client.HTTPConnection, path: str) -> bytes:
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise CommandError(f"the scheduler extender answers {response.status}: is it of this version?")
    return body


def _ask_pods(path: str) -> Iterator[bytes]:
    """Yield the answer of each scheduler's pod that is running: any of them may have been the leader."""
    from kubernetes import client

    rights = ": listing pods and pods/portforward in the scheduler's namespace must be allowed"
    with api_server(instead="; or name the extender by --extender", advice=rights) as api:
        core = client.CoreV1Api(api)
        pods: Any = core.list_pod_for_all_namespaces(
            label_selector=SCHEDULER_PODS, _request_timeout=TIMEOUT_SECONDS
        )
        running = [pod for pod in pods.items if pod.status.phase == "Running"]
        if not running:
            raise CommandError(
                f"no pod with labels {SCHEDULER_PODS} runs in this cluster: is the chart installed? A "
                "scheduler that runs elsewhere is named by --extender"
            )
        for pod in running:
            yield _forwarded(core, pod.metadata.namespace, pod.metadata.name, path)


def _forwarded(core: Any, namespace: str, pod: str, path: str) -> bytes:
    """Return the body of a GET on the loopback address of the pod."""
    from kubernetes.stream import portforward

    forward = portforward(
        core.connect_get_namespaced_pod_portforward, pod, namespace, ports=str(EXTENDER_PORT)
    )
    try:
        connection = http.client.HTTPConnection("127.0.0.1", timeout=TIMEOUT_SECONDS)
        connection.sock = forward.socket(EXTENDER_PORT)
        return _body_of(connection, path)
    finally:
        forward.close()
