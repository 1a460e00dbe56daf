"""The ConfigMap that tells the pods what to serve."""

import msgspec

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.inference_model import InferenceModel, ModelVersion, claim_and_path
from mcp2026.api.names import MODELS_DIRECTORY, SERVING_CONFIG_KEY, SERVING_REVISION_ANNOTATION
from mcp2026.api.quality_of_service import PriorityLevels, QueueLimits
from mcp2026.api.serving import (
    Priorities,
    QueuePolicy,
    ServedVersion,
    ServingConfig,
    decode_serving_config,
    encode_serving_config,
)
from mcp2026.operator.children.ownership import child_metadata
from mcp2026.operator.manifests import Manifest, digest, with_digest
from mcp2026.operator.observed import Observed, at


def serving_config(model: InferenceModel, revision: int) -> ServingConfig:
    """Return what each runtime process of `model` serves."""
    return ServingConfig(
        model=model.name,
        versions=tuple(_served(version) for version in model.spec.versions),
        batching=model.spec.batching,
        queue=_queue_policy(model.spec.qos.queue),
        priorities=_priorities(model.spec.qos.priorities),
        tenants=model.spec.qos.tenants,
        revision=revision,
    )


def _served(version: ModelVersion) -> ServedVersion:
    claim, path = claim_and_path(version.uri)
    return ServedVersion(
        version_id=version.version_id,
        path=f"{MODELS_DIRECTORY}/{claim}/{path}",
        weight=version.weight,
        sha256=version.sha256,
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


def serving_revision(model: InferenceModel, observed: Observed) -> int:
    """Return the revision of the wanted configuration: the known one while it is unchanged, else the next.

    What is known lies in two places, the status and the ConfigMap. An operator that dies between writing
    the two leaves the larger number in the ConfigMap; a ConfigMap deleted by hand leaves it in the status.
    """
    wanted = serving_digest(serving_config(model, revision=1))
    written = _written_config(observed)
    known = max(model.status.traffic.revision, written.revision if written else 0)
    template = at(observed.deployment, "spec", "template", "metadata", "annotations")
    unchanged = (written is not None and serving_digest(written) == wanted) or (
        at(template, SERVING_REVISION_ANNOTATION) == wanted
    )
    return max(known, 1) if unchanged else known + 1


def _written_config(observed: Observed) -> ServingConfig | None:
    document = at(observed.config_map, "data", SERVING_CONFIG_KEY)
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
