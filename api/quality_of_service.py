"""`spec.qos` of an InferenceModel: who is served first, whose share is larger, how long a request may wait.

The runtime gets it as `queue`, `priorities` and `tenants` of the serving configuration. The two differ where
a resource asks for it: the keys of a map are texts, and times are whole numbers.
"""

import re
from typing import Annotated, Final, Literal

import msgspec

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.serving import Tenant

TENANT_ID_PATTERN: Final = r"^[!-~]+$"
"""What an HTTP header and gRPC metadata carry unchanged."""
LEVEL_PATTERN: Final = r"^[1-9][0-9]{0,2}$"
"""A level as the key of a map; each has one spelling."""


class QueueLimits(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How long a queue may grow, in rows, and how long a request may wait in it, in ms."""

    max_rows: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    """Most rows that wait in one pod; one more is refused with 503. 0: the limit of each process."""
    default_timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)] = 0
    """Deadline of a request that names none, from its arrival. 0: the process's limit."""
    max_timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)] = 0
    """Longest deadline: who asks for more gets this. 0: the process's limit."""
    timeout_action: Literal["Reject", "Delay"] = "Reject"
    """Reject: answered with 504 when its time is over. Delay: served after all that are still in time."""


class PriorityLevels(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Priority levels: 1 is served first. A request that names none, or 0, has the default."""

    levels: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10
    default: Annotated[int, msgspec.Meta(ge=1, le=100)] = 5
    queues: Annotated[dict[str, QueueLimits], msgspec.Meta(max_length=100)] = {}
    """Per level, ``"1"`` to `levels`, limits that replace the model's."""


class QualityOfService(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Holds in each server process of the model."""

    tenants: Annotated[tuple[Tenant, ...], msgspec.Meta(max_length=64)] = ()
    """Tenants that are not named here share the weight 1."""
    priorities: PriorityLevels = PriorityLevels()
    queue: QueueLimits = QueueLimits()


def check_quality_of_service(field: str, qos: QualityOfService) -> None:
    """Check the rules that a type cannot hold: the CRD has the same ones in CEL.

    Args:
        field: where `qos` lies in the resource, for messages.
        qos: what to check.

    Raises:
        InvalidResourceError: the first rule that does not hold.

    """
    ids = [tenant.tenant_id for tenant in qos.tenants]
    for position, tenant_id in enumerate(ids):
        if not re.fullmatch(TENANT_ID_PATTERN, tenant_id):
            raise InvalidResourceError(
                f"{field}.tenants[{position}].tenantId",
                f"{tenant_id!r} is not allowed",
                "1 to 63 visible ASCII characters without spaces",
            )
    if len(set(ids)) != len(ids):
        raise InvalidResourceError(
            f"{field}.tenants", f"{', '.join(ids)} repeats an id", "each tenantId once"
        )
    levels = qos.priorities.levels
    if qos.priorities.default > levels:
        raise InvalidResourceError(
            f"{field}.priorities.default",
            f"{qos.priorities.default} is above levels {levels}",
            f"1 to levels ({levels}); it is 5 where it is not set",
        )
    for level in qos.priorities.queues:
        if not re.fullmatch(LEVEL_PATTERN, level) or int(level) > levels:
            raise InvalidResourceError(
                f"{field}.priorities.queues",
                f"{level!r} is no level",
                f'levels as keys, "1" to "{levels}"',
            )
