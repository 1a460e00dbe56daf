"""Tell the cluster which revision is live in this pod: on a Lease of the pod's own name.

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


def lease_of(pod: PodIdentity, model: str, standing: Standing) -> dict[str, Any]:
    """Return the Lease that says how far `pod` is with the revisions of `model`."""
    failed = standing.failed
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "labels": {MODEL_LABEL: model},
            "annotations": {
                LIVE_REVISION_ANNOTATION: str(standing.live),
                FAILED_REVISION_ANNOTATION: None if failed is None else str(failed),
                REVISION_PROBLEM_ANNOTATION: standing.problem or None,
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}],
        },
        "spec": {"holderIdentity": pod.uid},
    }


class LeaseReport:
    """Writes the newest standing, and tries again until it is written."""

    def __init__(self, coordination: "client.CoordinationV1Api", pod: PodIdentity, model: str) -> None:
        self._coordination = coordination
        self._pod = pod
        self._model = model
        self._changed = threading.Condition()
        self._standing: Standing | None = None
        self._ended = False

    def start(self) -> None:
        """Begin to write."""
        threading.Thread(target=self._run, name="lease-report", daemon=True).start()

    def tell(self, standing: Standing) -> None:
        """Have `standing` written; returns at once."""
        with self._changed:
            self._standing = standing
            self._changed.notify()

    def close(self) -> None:
        """Write no more."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _run(self) -> None:
        backoff = FIRST_BACKOFF
        while (standing := self._next()) is not None:
            try:
                self._write(standing)
                backoff = FIRST_BACKOFF
            except Exception as error:  # the client's, urllib3's and the network's have no base in common
                log.warning(
                    "the Lease %s cannot be written, again in %.1f s: %s", self._pod.name, backoff, error
                )
                self._retry_unless_newer(standing, backoff)
                backoff = min(2 * backoff, LONGEST_BACKOFF)

    def _next(self) -> Standing | None:
        """Wait for what to write; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._standing is not None or self._ended)
            standing, self._standing = self._standing, None
            return None if self._ended else standing

    def _retry_unless_newer(self, standing: Standing, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._standing is not None or self._ended, seconds)
            if self._standing is None:
                self._standing = standing

    def _write(self, standing: Standing) -> None:
        from kubernetes.client import ApiException

        lease = lease_of(self._pod, self._model, standing)
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
