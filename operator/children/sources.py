"""What a pod needs for its versions: the claims that hold them, and a cache for those that it fetches."""

from collections.abc import Iterable
from typing import Any, Final

from mcp2026.api.inference_model import ModelVersion, claim_and_path
from mcp2026.api.names import (
    MODEL_CACHE_DIRECTORY,
    MODEL_CACHE_VOLUME,
    MODELS_DIRECTORY,
    SOURCE_AUTHORIZATION_VARIABLE,
    SOURCE_HOST_VARIABLE,
)
from mcp2026.api.sources import is_remote

_CACHE_MIB: Final = 16_384
_VOLUME_MIB: Final = _CACHE_MIB + 1_024
"""More than is ever kept: a pod that exceeds it is evicted."""
_KEYS: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    SOURCE_AUTHORIZATION_VARIABLE,
    SOURCE_HOST_VARIABLE,
)


def claims_of(versions: Iterable[ModelVersion]) -> set[str]:
    """Return the claims on which versions lie."""
    return {claim_and_path(version.uri)[0] for version in versions if not is_remote(version.uri)}


def are_fetched(versions: Iterable[ModelVersion]) -> bool:
    """Return whether pods have to fetch one of them."""
    return any(is_remote(version.uri) for version in versions)


def path_in_pod(version: ModelVersion) -> str:
    """Return what the runtime is told to open: a path below its claim's mount, or the source itself."""
    if is_remote(version.uri):
        return version.uri
    claim, path = claim_and_path(version.uri)
    return f"{MODELS_DIRECTORY}/{claim}/{path}"


def cache_arguments() -> list[str]:
    """Return the flags of a server that fetches."""
    return ["--model-cache", MODEL_CACHE_DIRECTORY, "--model-cache-mib", str(_CACHE_MIB)]


def cache_volume() -> dict[str, Any]:
    """Return the volume: of the pod, so that a container that is restarted finds what it had."""
    return {"name": MODEL_CACHE_VOLUME, "emptyDir": {"sizeLimit": f"{_VOLUME_MIB}Mi"}}


def cache_mount() -> dict[str, Any]:
    """Return where it is mounted."""
    return {"name": MODEL_CACHE_VOLUME, "mountPath": MODEL_CACHE_DIRECTORY}


def source_environment(secret: str | None, given: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the variables from a Secret, each if the Secret has it, but for those that are `given`."""
    if secret is None:
        return []
    there = {variable["name"] for variable in given}
    return [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": key, "optional": True}}}
        for key in _KEYS
        if key not in there
    ]
