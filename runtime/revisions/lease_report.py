"""Tell the cluster how this pod stands, by annotations on a Lease of the pod's own name.

A Lease is the least that a pod can be allowed to write (docs/decisions/0090). It belongs to its pod, so it
goes when the pod goes. Blocking requests in a thread of their own; only the newest standing is told.
"""

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from mcp2026.api.names import (
    FAILED_REVISION_ANNOTATION,
    LIVE_REVISION_ANNOTATION,
    MODEL_LABEL,
    REVISION_PROBLEM_ANNOTATION,
)
from mcp2026.runtime.revisions.following import Standing

if TYPE_CHECKING:
    from kubernetes import client

log = logging.getLogger(__name__)

FIRST_BACKOFF, LONGEST_BACKOFF = 0.5, 30.0
REQUEST_SECONDS = (10, 30)
NOT_FOUND = 404


class PodIdentity(NamedTuple):
    """Who reports."""

    namespace: str
    name: str
    uid: str


Told = Mapping[str, str | None]
"""Annotations by name; None takes one away."""


def told_of(standing: Standing) -> Told:
    """Return what says how far the pod is with the revisions of its model."""
    return {
        LIVE_REVISION_ANNOTATION: str(standing.live),
        FAILED_REVISION_ANNOTATION: None if standing.failed is None else str(standing.failed),
        REVISION_PROBLEM_ANNOTATION: standing.problem or None,
    }


def lease_of(pod: PodIdentity, model: str, told: Told) -> dict[str, Any]:
    """Return the Lease on which `pod` of `model` tells `told`."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "labels": {MODEL_LABEL: model},
            "annotations": dict(told),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}],
        },
        "spec": {"holderIdentity": pod.uid},
    }


class LeaseReport:
    """Writes the newest of what is told, and tries again until it is written."""

    def __init__(self, coordination: "client.CoordinationV1Api", pod: PodIdentity, model: str) -> None:
        self._coordination = coordination
        self._pod = pod
        self._model = model
        self._changed = threading.Condition()
        self._told: Told | None = None
        self._ended = False

    def start(self) -> None:
        """Begin to write."""
        threading.Thread(target=self._run, name="lease-report", daemon=True).start()

    def tell(self, told: Told) -> None:
        """Have `told` written; returns at once."""
        with self._changed:
            self._told = told
            self._changed.notify()

    def close(self) -> None:
        """Write no more."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _run(self) -> None:
        backoff = FIRST_BACKOFF
        while (told := self._next()) is not None:
            try:
                self._write(told)
                backoff = FIRST_BACKOFF
            except Exception as error:  # the client's, urllib3's and the network's have no base in common
                log.warning(
                    "the Lease %s cannot be written, again in %.1f s: %s", self._pod.name, backoff, error
                )
                self._retry_unless_newer(told, backoff)
                backoff = min(2 * backoff, LONGEST_BACKOFF)

    def _next(self) -> Told | None:
        """Wait for what to write; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._told is not None or self._ended)
            told, self._told = self._told, None
            return None if self._ended else told

    def _retry_unless_newer(self, told: Told, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._told is not None or self._ended, seconds)
            if self._told is None:
                self._told = told

    def _write(self, told: Told) -> None:
        from kubernetes.client import ApiException

        lease = lease_of(self._pod, self._model, told)
        where = self._pod.namespace
        try:
            self._coordination.patch_namespaced_lease(
                self._pod.name, where, lease, _request_timeout=REQUEST_SECONDS
            )
        except ApiException as error:
            if error.status != NOT_FOUND:
                raise
            self._coordination.create_namespaced_lease(
                where, _without_nothing(lease), _request_timeout=REQUEST_SECONDS
            )


def _without_nothing(lease: dict[str, Any]) -> Any:
    """Return the Lease without annotations that a patch removes: a new one has none."""
    annotations: Mapping[str, str | None] = lease["metadata"]["annotations"]
    kept = {name: value for name, value in annotations.items() if value is not None}
    return {**lease, "metadata": {**lease["metadata"], "annotations": kept}}
