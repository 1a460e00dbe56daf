"""Priority and tenant of a request, from its headers or metadata; every protocol has the same names."""

from collections.abc import Mapping
from typing import NamedTuple

from mcp2026.api.names import PRIORITY_HEADER, STICKY_KEY_HEADER, TENANT_HEADER
from mcp2026.api.scheduling_context import SchedulingContext
from mcp2026.api.serving import ServingConfig
from mcp2026.runtime.errors import invalid

_PRIORITY = PRIORITY_HEADER.encode()
_TENANT = TENANT_HEADER.encode()
_MAX_TENANT = 63

STICKY_KEY = STICKY_KEY_HEADER.encode()


class SchedulingLabels(NamedTuple):
    """How a request wants to be scheduled."""

    priority: int = 0
    """1 is served first; 0 is the model's default."""
    tenant: str = ""


NONE = SchedulingLabels()


def scheduling_labels(headers: Mapping[bytes, bytes], config: ServingConfig) -> SchedulingLabels:
    """Return the labels in `headers`, whose names are in lower case.

    Raises:
        RequestError: the priority is no level of the model, or the tenant's name is too long.

    """
    priority = headers.get(_PRIORITY)
    tenant = headers.get(_TENANT)
    if priority is None and tenant is None:
        return NONE
    level = 0 if priority is None else _level(priority)
    check_priority(level, config, PRIORITY_HEADER)
    if tenant is not None and len(tenant) > _MAX_TENANT:
        raise invalid(TENANT_HEADER, f"has {len(tenant)} characters", f"at most {_MAX_TENANT}", "maxLength")
    return SchedulingLabels(level, tenant.decode("latin-1") if tenant is not None else "")


def entitled(labels: SchedulingLabels, context: SchedulingContext, levels: int) -> SchedulingLabels:
    """Return how a request is scheduled that says `labels`, given what its token entitles it to.

    What a verified token says counts, whatever the labels say: its priority, or the last of the `levels` that
    the model has. Without a token that should be there, a request is served last, for the default tenant.
    """
    claims = context.claims
    if claims is not None:
        return SchedulingLabels(min(claims.priority, levels), claims.tenant)
    if context.refusal is not None:
        return SchedulingLabels(levels, "")
    return labels


def check_priority(level: int, config: ServingConfig, field: str) -> None:
    """Raise unless `level` is a priority of the model, or 0.

    Raises:
        RequestError: it is not.

    """
    levels = config.priorities.levels
    if not 0 <= level <= levels:
        allowed = f"1 (first) to {levels}, or 0 for the default"
        raise invalid(field, f"{level} is out of range", allowed, "minimum" if level < 0 else "maximum")


def _level(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        shown = text[:32].decode("latin-1")
        raise invalid(PRIORITY_HEADER, f"{shown!r} is not a number", "a whole number", "type") from None
