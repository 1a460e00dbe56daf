"""The ConfigMap that tells the pods what to serve."""

import msgspec

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.inference_model import InferenceModel, ModelVersion
from mcp2026.api.names import SERVING_CONFIG_KEY
from mcp2026.api.quality_of_service import PriorityLevels, QueueLimits
from mcp2026.api.serving import (
    Priorities,
    QueuePolicy,
    ServedVersion,
    ServingConfig,
    decode_serving_config,
    encode_serving_config,
)
from mcp2026.operator.canary.labels import version_labels
from mcp2026.operator.children.ownership import child_metadata
from mcp2026.operator.children.sources import path_in_pod
from mcp2026.operator.manifests import Manifest, digest, with_digest
from mcp2026.operator.observed import Observed, at
from mcp2026.operator.traffic import largest_reported


def serving_config(model: InferenceModel, revision: int, *, stopped: bool = False) -> ServingConfig:
    """Return what each runtime process of `model` serves, or that it is to serve no more."""
    return ServingConfig(
        model=model.name,
        versions=_served_versions(model),
        batching=model.spec.batching,
        queue=_queue_policy(model.spec.qos.queue),
        priorities=_priorities(model.spec.qos.priorities),
        tenants=model.spec.qos.tenants,
        allow_incompatible=model.spec.allow_incompatible,
        revision=revision,
        stopped=stopped or msgspec.UNSET,
    )


def _served_versions(model: InferenceModel) -> tuple[ServedVersion, ...]:
    weights, labels = model.weights, version_labels(model.spec)
    return tuple(
        _served(version, weights[version.version_id], labels[version.version_id])
        for version in model.served_versions
    )


def _served(version: ModelVersion, weight: int, labels: tuple[str, ...]) -> ServedVersion:
    return ServedVersion(
        version_id=version.version_id,
        path=path_in_pod(version),
        weight=weight,
        sha256=version.sha256,
        labels=labels,
    )


def _queue_policy(limits: QueueLimits) -> QueuePolicy:
    return QueuePolicy(
        max_rows=limits.max_rows,
        default_timeout_ms=float(limits.default_timeout_ms),
        max_timeout_ms=float(limits.max_timeout_ms),
        timeout_action=limits.timeout_action,
    )


def _priorities(priorities: PriorityLevels) -> Priorities:
    return Priorities(
        levels=priorities.levels,
        default=priorities.default,
        queues={int(level): _queue_policy(limits) for level, limits in priorities.queues.items()},
    )


def serving_digest(config: ServingConfig) -> str:
    """Return a digest of all that is served; the revision has no part in it."""
    return digest(msgspec.to_builtins(msgspec.structs.replace(config, revision=1), str_keys=True))


def serving_revision(model: InferenceModel, observed: Observed, *, stopped: bool = False) -> int:
    """Return the revision of the wanted configuration: the newest known, if that says the same, or the next.

    A pod only takes a revision above the one it serves, so no number may come twice with another content.
    What is known lies in three places. An operator that dies between writing ConfigMap and status leaves the
    larger number in the ConfigMap; a ConfigMap deleted by hand leaves it in the status; and if both are lost,
    or come back from an old backup, the pods still report theirs. Only the ConfigMap tells what a number
    stood for; without it the same content gets the next number, which costs the pods nothing.
    """
    written = written_config(observed)
    known = max(
        model.status.traffic.revision,
        written.revision if written else 0,
        largest_reported(observed.leases.values()),
    )
    if written is not None and written.revision == known:
        wanted = serving_config(model, revision=known, stopped=stopped)
        if serving_digest(written) == serving_digest(wanted):
            return known
    return known + 1


def written_config(observed: Observed) -> ServingConfig | None:
    """Return what the ConfigMap says now, if it can be understood."""
    document = at(observed.child("ConfigMap"), "data", SERVING_CONFIG_KEY)
    if not isinstance(document, str):
        return None
    try:
        return decode_serving_config(document.encode())
    except InvalidResourceError:
        return None


def serving_config_map(model: InferenceModel, config: ServingConfig) -> Manifest:
    """Return the ConfigMap ``<model>-serving``."""
    return with_digest(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": child_metadata(model, "ConfigMap"),
            "data": {SERVING_CONFIG_KEY: encode_serving_config(config).decode()},
        }
    )
