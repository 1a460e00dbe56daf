"""NVLinks: what the driver tells of each, where it leads, and which of them ought to be up.

NVML tells of a link that is not active only that: a bridge that nobody bought looks like one that broke. What
ought to be up is inferred (`KnownLinks`).
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pynvml

from mcp2026.device_plugin.adapters.nvml.bus_ids import normal_bus_id
from mcp2026.device_plugin.adapters.nvml.calls import (
    DRIVER_GONE,
    GPU_GONE,
    NO_SUCH_FACT,
    CallError,
    Calls,
    text_field,
)
from mcp2026.device_plugin.errors import NvmlError
from mcp2026.topology.machine import NvLink

log = logging.getLogger(__name__)

GENERATION_OF_ARCHITECTURE = {
    pynvml.NVML_DEVICE_ARCH_PASCAL: 1,
    pynvml.NVML_DEVICE_ARCH_VOLTA: 2,
    pynvml.NVML_DEVICE_ARCH_TURING: 2,
    pynvml.NVML_DEVICE_ARCH_AMPERE: 3,
    pynvml.NVML_DEVICE_ARCH_HOPPER: 4,
    pynvml.NVML_DEVICE_ARCH_BLACKWELL: 5,
}
"""Asked before the version: drivers answer NVLink 5.0 on Hopper, whose links are of generation 4."""

GENERATION_OF_VERSION = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
"""`nvmlNvlinkVersion_t` (1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0, 6.0) to the generation."""

NO_SUCH_LINK = NO_SUCH_FACT | {pynvml.NVML_ERROR_INVALID_ARGUMENT}


@dataclass(frozen=True, slots=True)
class LinkReading:
    """What the driver tells of a link that is up. `remote_bus` is empty where it does not tell."""

    number: int
    remote_type: int
    remote_bus: str
    generation: int


def read_links(calls: Calls, handle: Any) -> tuple[LinkReading, ...]:
    """Return the links of a GPU that are up; one that cannot be read does not count."""
    links = []
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if calls.ask(pynvml.nvmlDeviceGetNvLinkState, handle, number) == pynvml.NVML_FEATURE_ENABLED:
                links.append(_read_link(calls, handle, number))
        except CallError as error:
            if error.code in GPU_GONE or error.code in DRIVER_GONE:
                raise
            if error.code not in NO_SUCH_LINK:
                log.warning("NVLink %d cannot be read (%s): not counted", number, error)
    return tuple(links)


def down_links(calls: Calls, handle: Any, expected: Iterable[int]) -> tuple[int, ...]:
    """Return which of the links that ought to be up the driver calls inactive, sorted."""
    return tuple(
        number
        for number in sorted(expected)
        if calls.fact(pynvml.nvmlDeviceGetNvLinkState, handle, number) == pynvml.NVML_FEATURE_DISABLED
    )


def _read_link(calls: Calls, handle: Any, number: int) -> LinkReading:
    remote_type = _of_link(calls, pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, number)
    remote_bus = ""
    if remote_type != pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        info = _of_link(calls, pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, number)
        remote_bus = _bus_id_or_nothing(info)
    if remote_type is None:
        remote_type = pynvml.NVML_NVLINK_DEVICE_TYPE_UNKNOWN
    return LinkReading(number, remote_type, remote_bus, _generation(calls, handle, number))


def _of_link(calls: Calls, function: Any, handle: Any, number: int) -> Any:
    try:
        return calls.ask(function, handle, number)
    except CallError as error:
        if error.code not in NO_SUCH_LINK:
            raise
        return None


def _bus_id_or_nothing(info: Any) -> str:
    if info is None:
        return ""
    try:
        return normal_bus_id(text_field(info, "busId"))
    except NvmlError:
        return ""


def _generation(calls: Calls, handle: Any, number: int) -> int:
    known = GENERATION_OF_ARCHITECTURE.get(calls.fact(pynvml.nvmlDeviceGetArchitecture, handle))
    if known is not None:
        return known
    return GENERATION_OF_VERSION.get(calls.fact(pynvml.nvmlDeviceGetNvLinkVersion, handle, number), 0)


# ---- what is made of them, without the driver ----


def nvlinks(links: Iterable[LinkReading], index_of_bus: Mapping[str, int]) -> tuple[NvLink, ...]:
    """Return where the links lead.

    A virtual machine may hide the switches: a link whose other end is unknown counts as one to a switch. A
    link to a GPU that is not of this machine counts for nothing, or two such GPUs would seem joined.
    """
    known = []
    for link in links:
        peer = index_of_bus.get(link.remote_bus)
        if peer is None and not _may_be_a_switch(link):
            where = link.remote_bus or "a device without a bus id"
            log.info("NVLink %d leads to %s, which this node does not show: not counted", link.number, where)
            continue
        known.append(NvLink(link.number, peer, link.generation))
    return tuple(known)


def _may_be_a_switch(link: LinkReading) -> bool:
    return link.remote_type in (
        pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH,
        pynvml.NVML_NVLINK_DEVICE_TYPE_UNKNOWN,
    )


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """The links of one GPU that are up, and whether they lead to switches."""

    uuid: str
    product: str
    up: frozenset[int]
    switched: bool


class KnownLinks:
    """Which links ought to be up, by what was seen.

    A link ought to be up that was up before; and one that is up on half of the GPUs of the same product which
    have links, if this GPU has links, or if those lead to switches: in such a machine all GPUs are wired
    alike. A GPU without any link beside bridged ones is one that has no bridge.
    """

    def __init__(self) -> None:
        self._seen: dict[str, frozenset[int]] = {}
        self._alike: dict[str, frozenset[int]] = {}

    def learn(self, gpus: Iterable[GpuLinks]) -> None:
        """Take in how the links of all GPUs are."""
        by_product: dict[str, list[GpuLinks]] = {}
        for gpu in gpus:
            self._seen[gpu.uuid] = self._seen.get(gpu.uuid, frozenset()) | gpu.up
            by_product.setdefault(gpu.product, []).append(gpu)
        self._alike = {}
        for group in by_product.values():
            linked = [gpu for gpu in group if gpu.up]
            usual = _usual(linked)
            switched = any(gpu.switched for gpu in linked)
            self._alike |= {gpu.uuid: usual for gpu in group if switched or gpu.up}

    def expected(self, uuid: str) -> frozenset[int]:
        """Return the numbers of the links that ought to be up; none for a GPU that was never read."""
        return self._seen.get(uuid, frozenset()) | self._alike.get(uuid, frozenset())


def _usual(gpus: list[GpuLinks]) -> frozenset[int]:
    numbers = frozenset[int]().union(*(gpu.up for gpu in gpus))
    return frozenset(n for n in numbers if 2 * sum(n in gpu.up for gpu in gpus) >= len(gpus))
