"""Versions come and go: the next serving configuration from the present one.

A new version takes the weight that it asks for; a version that goes leaves its weight to the others. Those
that stay keep their proportions, as whole percent allow: shares are cut down, and what is left over goes to
the largest remainders, of equal ones to the version that was there first.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from mcp2026.api.serving import MAX_VERSIONS, ServedVersion, ServingConfig
from mcp2026.api.shares import shares
from mcp2026.runtime.errors import ErrorCode, RequestError


def with_version(config: ServingConfig, version: ServedVersion) -> ServingConfig:
    """Return the next revision of `config`, which serves `version` too, with the weight that it has.

    Raises:
        RequestError: the model has this version already, or as many as it may have.

    """
    names = [name for one in config.versions for name in (one.version_id, *one.labels)]
    if version.version_id in names:
        raise RequestError(
            ErrorCode.ALREADY_EXISTS,
            f"{config.model!r} has a version {version.version_id!r} already",
            "version_id",
            f"an id other than {', '.join(names)}",
        )
    if len(config.versions) >= MAX_VERSIONS:
        raise RequestError(
            ErrorCode.FAILED_PRECONDITION,
            f"{config.model!r} has {len(config.versions)} versions already; retire one",
            "version_id",
            f"at most {MAX_VERSIONS} versions",
        )
    kept = _weighted(config.versions, 100 - version.weight)
    return replace(config, versions=(*kept, version), revision=config.revision + 1)


def without_version(config: ServingConfig, version_id: str) -> ServingConfig:
    """Return the next revision of `config`, which does not serve the version.

    Raises:
        RequestError: there is no such version, it is the last one, or only it has any weight.

    """
    kept = [one for one in config.versions if one.version_id != version_id]
    others = ", ".join(one.version_id for one in kept)
    if len(kept) == len(config.versions):
        raise RequestError(
            ErrorCode.NOT_FOUND,
            f"model {config.model!r} has no version {version_id[:64]!r}",
            "version_id",
            others,
        )
    if not kept:
        raise RequestError(
            ErrorCode.FAILED_PRECONDITION,
            f"{version_id!r} is the last version of {config.model!r}",
            "version_id",
            "a model that has another version",
        )
    if not any(one.weight for one in kept):
        raise RequestError(
            ErrorCode.FAILED_PRECONDITION,
            f"{version_id!r} has all the weight: no request would reach {others} unless it names them",
            "version_id",
            "a model of which another version has a weight above 0; register one",
        )
    return replace(config, versions=tuple(_weighted(kept, 100)), revision=config.revision + 1)


def _weighted(versions: Sequence[ServedVersion], total: int) -> list[ServedVersion]:
    weights = shares([version.weight for version in versions], total)
    return [replace(version, weight=weight) for version, weight in zip(versions, weights, strict=True)]
