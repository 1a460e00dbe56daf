"""The section `health:` of the configuration file."""

from typing import Annotated, Literal

import msgspec

from mcp2026.api.errors import InvalidResourceError

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Faults of a program, not of the GPU; the same as NVIDIA's device plugin ignores."""

TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute", "None"]
Xid = Annotated[int, msgspec.Meta(ge=1, le=9999, description="an XID, from 1 to 9999")]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=86400, description="0 to 86400 seconds")]


class HealthSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How faults are judged, and what is done to the node.

    `ignored_xids` are ignored beside `APPLICATION_XIDS`, `additional_xids` are not ignored although they are
    among those. `recover_after_seconds` is how long a GPU must be without fault to be healthy again, twice
    as long after each further failure within an hour; `overheated_after_seconds` is how long it must be
    slowed down by heat to be degraded. The node is tainted when the `First` of its GPUs fails, or when `All`
    have.
    """

    ignored_xids: tuple[Xid, ...] = ()
    additional_xids: tuple[Xid, ...] = ()
    recover_after_seconds: Seconds = 60.0
    overheated_after_seconds: Seconds = 10.0
    taint_effect: TaintEffect = "NoSchedule"
    taint_when: Literal["First", "All"] = "First"

    @property
    def ignored(self) -> frozenset[int]:
        """The XIDs that are no fault of a GPU."""
        return (APPLICATION_XIDS | set(self.ignored_xids)) - set(self.additional_xids)


def check_health_settings(settings: HealthSettings, field: str = "health") -> None:
    """Refuse what contradicts itself. `field` is the path of `settings`.

    Raises:
        InvalidResourceError: an XID is to be ignored and not to be ignored.

    """
    if both := sorted(set(settings.ignored_xids) & set(settings.additional_xids)):
        raise InvalidResourceError(
            f"{field}.additionalXids", f"{both[0]} is in {field}.ignoredXids too", "each XID in one of them"
        )
