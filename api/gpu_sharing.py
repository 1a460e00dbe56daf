"""How a GPU may be shared between containers: the words of `GPUTopology`, the plugin and the scheduler."""

from typing import Annotated, Final, Literal

import msgspec

from mcp2026.api.errors import InvalidResourceError

SharingMode = Literal["Exclusive", "TimeSlice", "MPS", "MIG"]
"""Exclusive: one container at a time. TimeSlice: containers take turns, without isolation of memory. MPS:
containers run at the same time through a control daemon, with limits for each. MIG: cut by hardware."""

ShareUnit = Literal["Replica", "Memory"]
"""What a GPU in mode TimeSlice or MPS is sold by: equal shares (`mcp2026.io/gpu-shared`) or GiB of memory
(`mcp2026.io/gpu-memory`). Never by both: the GPU would be sold twice."""

SharingState = Literal["Active", "Draining", "Changing", "Failed"]
"""Active: as wanted. Draining: waiting for pods that still hold the GPU in its old mode. Changing: being set
up. Failed: could not be set up; the GPU offers nothing until the configuration or the fault changes."""

MOST_REPLICAS: Final = 64
MOST_MPS_CLIENTS: Final = 48
"""From compute capability 7.0 on; 16 before."""
MOST_MIG_DEVICES: Final = 7

Replicas = Annotated[
    int,
    msgspec.Meta(ge=1, le=MOST_REPLICAS, description=f"an integer from 1 to {MOST_REPLICAS}"),
]
MigProfileName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[1-9]g\.[1-9][0-9]*gb(\+me)?$",
        max_length=16,
        description="a profile such as 1g.10gb or 1g.10gb+me",
    ),
]


class Sharing(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How a GPU shall be shared.

    `replicas` is for modes TimeSlice and MPS with unit Replica (None: 4), `mig_layout` for mode MIG: the
    profiles that shall be there, placed by the planner.
    """

    mode: SharingMode = "Exclusive"
    unit: ShareUnit = "Replica"
    replicas: Replicas | None = None
    mig_layout: Annotated[tuple[MigProfileName, ...], msgspec.Meta(max_length=MOST_MIG_DEVICES)] = ()

    @property
    def shares(self) -> int:
        """How many equal shares the GPU is sold in; 1 where it is not sold by replicas."""
        if self.mode in ("TimeSlice", "MPS") and self.unit == "Replica":
            return DEFAULT_REPLICAS if self.replicas is None else self.replicas
        return 1


DEFAULT_REPLICAS: Final = 4
EXCLUSIVE: Final = Sharing()


class SharingStatus(msgspec.Struct, frozen=True, rename="camel"):
    """How a GPU is shared now; `message` says what is waited for, or what went wrong."""

    mode: SharingMode = "Exclusive"
    unit: ShareUnit = "Replica"
    replicas: int | None = None
    state: SharingState = "Active"
    message: str = ""


def check_sharing(sharing: Sharing, field: str) -> None:
    """Refuse a combination that means nothing. `field` is the path of `sharing`.

    Raises:
        InvalidResourceError: the first field that does not fit the mode.

    """
    shared = sharing.mode in ("TimeSlice", "MPS")
    if sharing.unit == "Memory" and not shared:
        raise InvalidResourceError(f"{field}.unit", "Memory", "Memory with mode TimeSlice or MPS alone")
    if sharing.replicas is not None and not (shared and sharing.unit == "Replica"):
        raise InvalidResourceError(
            f"{field}.replicas", str(sharing.replicas), "with mode TimeSlice or MPS and unit Replica alone"
        )
    if sharing.mode == "MPS" and sharing.shares > MOST_MPS_CLIENTS:
        raise InvalidResourceError(
            f"{field}.replicas",
            f"{sharing.shares} with mode MPS",
            f"at most {MOST_MPS_CLIENTS} with mode MPS",
        )
    if sharing.mode == "MIG" and not sharing.mig_layout:
        raise InvalidResourceError(
            f"{field}.migLayout", "is empty", "with mode MIG at least one profile, such as 3g.40gb"
        )
    if sharing.mig_layout and sharing.mode != "MIG":
        raise InvalidResourceError(f"{field}.migLayout", "is given", "with mode MIG alone")
