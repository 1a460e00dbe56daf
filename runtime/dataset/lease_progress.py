"""Tell the cluster how far the run is: on the Lease of the pod's name, as servers tell their revision."""

import json
import logging
from typing import Protocol

from mcp2026.api.names import BATCH_PROGRESS_ANNOTATION
from mcp2026.runtime.dataset.progress import Reporter, Snapshot
from mcp2026.runtime.dataset.settings import BatchSettings
from mcp2026.runtime.revisions.lease_report import LeaseReport, PodIdentity, Told

log = logging.getLogger(__name__)

WRITE_EVERY_S = 5.0


class Lease(Protocol):
    """Where it is told."""

    def tell(self, told: Told) -> None:
        """Have it written; returns at once."""


class LeaseProgress:
    """Writes the number of rows when it has changed, at most once in 5 s. The end is told otherwise."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._next = 0.0
        self._written = (0, 0)

    def report(self, snapshot: Snapshot, now: float, *, last: bool) -> None:
        """Have the numbers written, if they are new and it is time."""
        counts = (snapshot.rows_done, snapshot.rows_total)
        if counts == self._written or snapshot.rows_total == 0 or (now < self._next and not last):
            return
        self._next, self._written = now + WRITE_EVERY_S, counts
        text = json.dumps({"rowsDone": counts[0], "rowsTotal": counts[1]})
        self._lease.tell({BATCH_PROGRESS_ANNOTATION: text})


def lease_reporters(settings: BatchSettings) -> list[Reporter]:
    """Return who tells the cluster, if the settings name the pod. Without credentials the run goes on."""
    if settings.pod_name is None:
        return []
    # Imported here: outside a cluster none of it is needed.
    from kubernetes import client, config
    from kubernetes.config import ConfigException

    try:
        config.load_config()  # type: ignore[no-untyped-call]  # the client has no types
    except ConfigException as error:
        log.warning("the progress is not told to the cluster: no credentials for the API server: %s", error)
        return []
    # The settings were checked: none of these is None.
    pod = PodIdentity(str(settings.pod_namespace), settings.pod_name, str(settings.pod_uid))
    lease = LeaseReport(client.CoordinationV1Api(client.ApiClient()), pod, settings.config.model)
    lease.start()
    return [LeaseProgress(lease)]
