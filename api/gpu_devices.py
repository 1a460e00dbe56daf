"""Names of devices: what the kubelet, `GPUTopology` and a reservation call a GPU or a part of one.

A whole GPU and a MIG device have their driver's UUID. A share is ``<uuid>::<n>`` and a GiB of memory
``<uuid>::m<n>``, with n from 0: at most 63 characters, the kubelet's limit, as a UUID has 40.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mcp2026.api.names import (
    GPU_MEMORY_RESOURCE,
    GPU_RESOURCE,
    GPU_SHARED_RESOURCE,
    MIG_RESOURCE_PREFIX,
)

LONGEST_DEVICE_ID: Final = 63
"""Characters; the kubelet's limit."""

_PARTED = re.compile(r"(?P<uuid>[^:]+)::(?P<memory>m?)(?P<number>0|[1-9][0-9]{0,8})")


class DeviceKind(StrEnum):
    """What one unit of a resource is."""

    GPU = "gpu"
    """A whole GPU."""
    SHARE = "share"
    """One of the replicas that a GPU is offered in."""
    MEMORY = "memory"
    """1 GiB of the memory of a GPU."""
    MIG = "mig"
    """A MIG device."""


_KINDS: Final = {
    GPU_RESOURCE: DeviceKind.GPU,
    GPU_SHARED_RESOURCE: DeviceKind.SHARE,
    GPU_MEMORY_RESOURCE: DeviceKind.MEMORY,
}


@dataclass(frozen=True, slots=True)
class DeviceId:
    """A device's name, taken apart. `uuid` is that of the GPU, or of the MIG device itself."""

    uuid: str
    kind: DeviceKind
    number: int = 0

    def __str__(self) -> str:
        match self.kind:
            case DeviceKind.SHARE:
                return f"{self.uuid}::{self.number}"
            case DeviceKind.MEMORY:
                return f"{self.uuid}::m{self.number}"
            case _:
                return self.uuid


def parse_device_id(text: str) -> DeviceId:
    """Return `text` taken apart; what is no share and no GiB is a whole GPU or a MIG device. Never raises."""
    if parted := _PARTED.fullmatch(text):
        kind = DeviceKind.MEMORY if parted["memory"] else DeviceKind.SHARE
        return DeviceId(parted["uuid"], kind, int(parted["number"]))
    return DeviceId(text, DeviceKind.MIG if text.startswith("MIG-") else DeviceKind.GPU)


def mig_resource(profile: str) -> str:
    """Return the extended resource of MIG devices of `profile`: ``1g.10gb+me`` is ``…/mig-1g.10gb.me``."""
    return MIG_RESOURCE_PREFIX + profile.replace("+", ".")


def kind_of_resource(resource: str) -> DeviceKind | None:
    """Return what one unit of `resource` is; None for a resource that is not ours."""
    if resource.startswith(MIG_RESOURCE_PREFIX):
        return DeviceKind.MIG
    return _KINDS.get(resource)
