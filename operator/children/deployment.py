"""The Deployment that runs a model's replicas.

Whatever changes in the pod template restarts pods, so only what a pod cannot learn otherwise is in it: image,
workers, GPUs, resources, priority class, and the claims. Versions, weights, limits and tenants it learns from
its ConfigMap (docs/decisions/0090). A promised latency is in it for the scheduler, and changes with the next
change that restarts pods anyhow (docs/decisions/0120).
"""

from typing import Any

from mcp2026.api.inference_model import InferenceModel, claim_and_path
from mcp2026.api.names import (
    GRPC_PORT,
    MANIFEST_DIGEST_ANNOTATION,
    MODEL_CACHE_VOLUME,
    MODEL_LABEL,
    MODELS_DIRECTORY,
    REST_PORT,
    SERVING_CONFIG_DIRECTORY,
    SERVING_CONFIG_KEY,
    SLO_LATENCY_ANNOTATION,
)
from mcp2026.api.stopping import LogArchive
from mcp2026.operator.children.ownership import child_metadata, child_name
from mcp2026.operator.children.pod import (
    CONTAINER_SECURITY,
    TERMINATION_MESSAGE,
    credentials,
    environment,
    pod_security,
    pod_template,
    promised_latency,
    read_only,
    resources,
)
from mcp2026.operator.children.sources import (
    are_fetched,
    cache_arguments,
    cache_mount,
    cache_volume,
    claims_of,
    source_environment,
)
from mcp2026.operator.manifests import Manifest, with_digest
from mcp2026.operator.observed import at
from mcp2026.operator.settings import PodSettings

_STARTUP_SECONDS = 600
"""How long a model may take to load before its pod is restarted."""
_CLAIM_VOLUMES = "models-"
_CACHE = "/"
"""Stands among the claims for the cache of what is fetched. No claim has this name."""
ENDING_DIRECTORY = "/tmp/ending"
"""In the emptyDir of the pod: outlives containers."""


def deployment(model: InferenceModel, settings: PodSettings, running: Manifest | None = None) -> Manifest:
    """Return the Deployment ``<model>``. `running` is the one that is there.

    A claim that no version uses any more stays mounted in the pods that have it, and a promise that was
    changed stays in their template, until they are replaced for another reason.
    """
    return with_digest(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": child_metadata(model, "Deployment"),
            "spec": {
                "replicas": model.spec.replicas,
                "revisionHistoryLimit": 3,
                "progressDeadlineSeconds": _STARTUP_SECONDS + 60,
                "selector": {"matchLabels": {MODEL_LABEL: model.name}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": _rolling_update(model)},
                "template": _template(model, settings, running),
            },
        }
    )


def _template(model: InferenceModel, settings: PodSettings, running: Manifest | None) -> dict[str, Any]:
    used = claims_of(model.served_versions) | _written_claims(model)
    if are_fetched(model.served_versions):
        used.add(_CACHE)
    mounted = _mounted_claims(running)
    withdrawn = claims_of(model.spec.versions) - used
    there = at(running, "spec", "template")
    # Of a claim that cannot be used pods are to be rid.
    for claims in (used, mounted) if used < mounted and not withdrawn else (used,):
        for promised in (
            promised_latency(model),
            at(there, "metadata", "annotations", SLO_LATENCY_ANNOTATION),
        ):
            template = _pod_template(model, claims, settings, promised)
            if template_digest_of(template) == template_digest_of(there):
                return template
    return _pod_template(model, used, settings, promised_latency(model))


def _mounted_claims(running: Manifest | None) -> set[str]:
    volumes = at(running, "spec", "template", "spec", "volumes") or []
    claims = [
        at(volume, "persistentVolumeClaim", "claimName")
        for volume in volumes
        if str(at(volume, "name")).startswith(_CLAIM_VOLUMES)
    ]
    caches = [_CACHE for volume in volumes if at(volume, "name") == MODEL_CACHE_VOLUME]
    return {*caches, *(claim for claim in claims if isinstance(claim, str))}


def template_digest(manifest: Manifest) -> str:
    """Return the digest of the pod template in a Deployment made here."""
    return template_digest_of(manifest["spec"]["template"])


def template_digest_of(template: Any) -> str:
    """Return the digest that a pod template carries; one that we did not make has none."""
    return str(at(template, "metadata", "annotations", MANIFEST_DIGEST_ANNOTATION))


def _rolling_update(model: InferenceModel) -> dict[str, int]:
    """With GPUs an old pod goes first: a surge would wait for ever for GPUs that the old pods hold."""
    if model.spec.gpu.count > 0:
        return {"maxSurge": 0, "maxUnavailable": 1}
    return {"maxSurge": 1, "maxUnavailable": 0}


def _pod_template(
    model: InferenceModel, claims: set[str], settings: PodSettings, promised: str | None
) -> dict[str, Any]:
    volumes, written = _claim_volumes(claims - {_CACHE}), _written_claims(model)
    fetches = _CACHE in claims
    spec: dict[str, Any] = {
        "serviceAccountName": child_name("ServiceAccount", model.name),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": settings.termination_grace_seconds,
        "securityContext": pod_security(writes=bool(written)),
        "containers": [_runtime_container(model, volumes, settings, fetches=fetches)],
        "volumes": [
            {"name": "serving-config", "configMap": {"name": child_name("ConfigMap", model.name)}},
            {"name": "tmp", "emptyDir": {}},
            *([cache_volume()] if fetches else []),
            *(
                {
                    "name": volume,
                    "persistentVolumeClaim": {"claimName": claim, **read_only(claim not in written)},
                }
                for volume, claim in volumes
            ),
        ],
    }
    return pod_template(model, spec, settings, promised)


def _claim_volumes(claims: set[str]) -> list[tuple[str, str]]:
    """Return each claim with the name of its volume: a claim's name may be too long for one."""
    return [(f"{_CLAIM_VOLUMES}{position}", claim) for position, claim in enumerate(sorted(claims))]


def _written_claims(model: InferenceModel) -> set[str]:
    archive = model.spec.log_archive
    if archive is None or not archive.folder.startswith("pvc://"):
        return set()
    return {claim_and_path(archive.folder)[0]}


def _log_archive(archive: LogArchive | None) -> list[str]:
    """Return the flag; a claim by its path in the pod, so that what stands in for a pod finds its own."""
    if archive is None:
        return []
    if not archive.folder.startswith("pvc://"):
        return ["--log-archive", archive.folder]
    claim, path = claim_and_path(archive.folder)
    return ["--log-archive", f"{MODELS_DIRECTORY}/{claim}/{path}"]


def _runtime_container(
    model: InferenceModel, volumes: list[tuple[str, str]], settings: PodSettings, *, fetches: bool
) -> dict[str, Any]:
    archive, written = model.spec.log_archive, _written_claims(model)
    archives = credentials(archive.credentials_secret if archive else None)
    return {
        "name": "runtime",
        "image": settings.runtime_image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["mcp2026-server"],
        "args": [
            "--serving-config",
            f"{SERVING_CONFIG_DIRECTORY}/{SERVING_CONFIG_KEY}",
            "--serving-config-map",
            child_name("ConfigMap", model.name),
            "--host",
            "0.0.0.0",
            "--port",
            str(REST_PORT),
            "--grpc-port",
            str(GRPC_PORT),
            "--workers",
            str(model.spec.workers),
            "--lame-duck-seconds",
            str(settings.lame_duck_seconds),
            "--log-format",
            settings.log_format,
            "--ending-directory",
            ENDING_DIRECTORY,
            "--termination-message",
            TERMINATION_MESSAGE,
            *_log_archive(archive),
            *(cache_arguments() if fetches else []),
        ],
        "env": [
            *environment(model),
            *archives,
            *source_environment(model.spec.credentials_secret, archives),
        ],
        "ports": [
            {"name": "http", "containerPort": REST_PORT, "protocol": "TCP"},
            {"name": "grpc", "containerPort": GRPC_PORT, "protocol": "TCP"},
        ],
        "startupProbe": _probe("/healthz", period_seconds=1, failures=_STARTUP_SECONDS),
        "readinessProbe": _probe("/readyz", period_seconds=2, failures=1),
        "livenessProbe": _probe("/healthz", period_seconds=10, failures=3),
        "resources": resources(model),
        "terminationMessagePath": TERMINATION_MESSAGE,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "serving-config", "mountPath": SERVING_CONFIG_DIRECTORY, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            *([cache_mount()] if fetches else []),
            *(
                {
                    "name": volume,
                    "mountPath": f"{MODELS_DIRECTORY}/{claim}",
                    **read_only(claim not in written),
                }
                for volume, claim in volumes
            ),
        ],
    }


def _probe(path: str, *, period_seconds: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }
