"""What GPUs does this node have, how are they linked, and do they still answer? Asked through pynvml.

`NvmlDriver` is used at start, by the health probe and when a GPU comes back; never while the kubelet waits.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pynvml

from mcp2026.device_plugin.errors import (
    DriverNotRunningError,
    DriverTooOldError,
    NoDriverLibraryError,
    NvmlError,
)
from mcp2026.topology.machine import Gpu, Machine, NvLink, PcieAncestor

log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")
_Handle = Any

NVLINK_GENERATION_OF_ARCHITECTURE = {
    pynvml.NVML_DEVICE_ARCH_PASCAL: 1,
    pynvml.NVML_DEVICE_ARCH_VOLTA: 2,
    pynvml.NVML_DEVICE_ARCH_TURING: 2,
    pynvml.NVML_DEVICE_ARCH_AMPERE: 3,
    pynvml.NVML_DEVICE_ARCH_HOPPER: 4,
    pynvml.NVML_DEVICE_ARCH_BLACKWELL: 5,
}
"""Asked before the version: drivers answer NVLink 5.0 on Hopper, whose links are of generation 4."""

NVLINK_GENERATION_OF_VERSION = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
"""`nvmlNvlinkVersion_t` (1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0, 6.0) to the generation."""

NUMA_SET_WORDS = 16
"""Room for 1,024 NUMA nodes, the most that Linux has."""

_NO_SUCH_FACT = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
_NO_SUCH_LINK = (*_NO_SUCH_FACT, pynvml.NVML_ERROR_INVALID_ARGUMENT)


@dataclass(frozen=True, slots=True)
class Reading:
    """A machine; the GPUs that are not part of it (NVML index → reason); the N of /dev/nvidiaN by UUID."""

    machine: Machine
    unreadable: dict[int, str]
    minor_numbers: dict[str, int]


class NvmlDriver:
    """The NVIDIA driver of this node, between `open` and `close`. Not for use by two threads at once."""

    def __init__(self, sysfs: Path = Path("/sys")) -> None:
        self._sysfs = sysfs
        self._driver = ""

    @classmethod
    def open(cls) -> Self:
        """Start NVML.

        Raises:
            NoDriverLibraryError: there is no libnvidia-ml.so.1.
            DriverNotRunningError: the library cannot reach the kernel module.
            DriverTooOldError: the library has no nvmlInitWithFlags.

        """
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
                raise NoDriverLibraryError from error
            if error.value == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise DriverTooOldError("nvmlInitWithFlags", "") from error
            raise DriverNotRunningError(str(error)) from error
        return cls()

    def close(self) -> None:
        """Stop NVML; an error of the driver is of no interest any more."""
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, name: str) -> Reading:
        """Read all GPUs and their links as the machine `name`.

        A GPU that does not answer, or is split by MIG, is left out and named in `unreadable`. Where the
        driver tells no size of memory (GPUs that share the CPU's), it is 0.

        Raises:
            DriverTooOldError: a function is missing that has no substitute.
            DriverNotRunningError: the driver as a whole refuses.

        """
        version: str | None = self._system_call(lambda: _optional(pynvml.nvmlSystemGetDriverVersion))
        self._driver = version or ""
        handles: dict[int, _Handle] = {}
        facts: dict[int, Gpu] = {}
        unreadable: dict[int, str] = {}
        for index in range(self._system_call(pynvml.nvmlDeviceGetCount)):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                if _in_mig_mode(handle):
                    unreadable[index] = "is in MIG mode, and so no whole GPU"
                    log.warning("GPU %d %s: it is not offered", index, unreadable[index])
                    continue
                facts[index] = self._read_gpu(index, handle)
                handles[index] = handle
            except pynvml.NVMLError_FunctionNotFound as error:
                raise DriverTooOldError("one of the basic functions", self._driver) from error
            except pynvml.NVMLError as error:
                unreadable[index] = str(error)
                log.warning("GPU %d cannot be read (%s): it is not offered", index, error)
        index_of_bus = {gpu.pci_bus_id: index for index, gpu in facts.items()}
        for index, gpu in list(facts.items()):
            try:
                facts[index] = _with_links(gpu, _read_links(handles[index], index_of_bus))
            except pynvml.NVMLError as error:
                unreadable[index] = str(error)
                log.warning("the NVLinks of GPU %d cannot be read (%s): it is not offered", index, error)
                del facts[index]
        gpus = tuple(facts.values())
        ancestors = tuple(
            tuple(None if a == b else _ancestor(handles[a], handles[b]) for b in facts) for a in facts
        )
        machine = Machine(name, gpus, ancestors, self._driver, self._cuda())
        minors = {
            gpu.uuid: minor
            for index, gpu in facts.items()
            if (minor := _minor_number(handles[index])) is not None
        }
        return Reading(machine, unreadable, minors)

    def failure(self, uuid: str) -> str | None:
        """Return why the GPU `uuid` does not work, None when it answers. A cheap probe: two calls.

        Raises:
            DriverNotRunningError: no GPU answers because the driver is gone.

        """
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            _optional(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
        except (pynvml.NVMLError_Uninitialized, pynvml.NVMLError_DriverNotLoaded) as error:
            raise DriverNotRunningError(str(error)) from error
        except pynvml.NVMLError as error:
            return str(error)
        return None

    def answers(self, index: int) -> bool:
        """Tell whether the GPU with the NVML index `index`, left out before, can be read and offered now."""
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            pynvml.nvmlDeviceGetUUID(handle)
            return not _in_mig_mode(handle)
        except pynvml.NVMLError:
            return False

    def _system_call(self, function: Callable[[], _Answer]) -> _Answer:
        try:
            return function()
        except pynvml.NVMLError_FunctionNotFound as error:
            raise DriverTooOldError(function.__name__, self._driver) from error
        except pynvml.NVMLError as error:
            raise DriverNotRunningError(str(error)) from error

    def _read_gpu(self, index: int, handle: _Handle) -> Gpu:
        bus_id = normal_bus_id(pynvml.nvmlDeviceGetPciInfo(handle).busId)
        memory = _optional(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
        return Gpu(
            index=index,
            uuid=pynvml.nvmlDeviceGetUUID(handle),
            product=pynvml.nvmlDeviceGetName(handle),
            memory_mib=memory.total >> 20 if memory is not None else 0,
            pci_bus_id=bus_id,
            numa_node=self._numa_node(handle, bus_id),
        )

    def _numa_node(self, handle: _Handle, bus_id: str) -> int | None:
        """Return the NUMA node next to the GPU; nvmlDeviceGetNumaNodeId gives that of its own memory."""
        words = _optional(
            lambda: pynvml.nvmlDeviceGetMemoryAffinity(
                handle, NUMA_SET_WORDS, pynvml.NVML_AFFINITY_SCOPE_NODE
            )
        )
        if words is not None:
            nodes: int = sum(word << 64 * place for place, word in enumerate(words))
            if nodes:
                return (nodes & -nodes).bit_length() - 1
        return numa_node_from_sysfs(self._sysfs, bus_id)

    def _cuda(self) -> str:
        version = self._system_call(lambda: _optional(pynvml.nvmlSystemGetCudaDriverVersion_v2))
        return "" if version is None else f"{version // 1000}.{version % 1000 // 10}"


def normal_bus_id(bus_id: str | bytes) -> str:
    """Return `bus_id` with a domain of eight digits, in upper case: `0000:3b:00.0` is `00000000:3B:00.0`.

    Raises:
        NvmlError: it is not a PCI bus id.

    """
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.partition(":")
    try:
        return f"{int(domain, 16):08X}:{rest.upper()}"
    except ValueError as error:
        raise NvmlError(f"the driver gave a PCI bus id that cannot be read: {text!r}") from error


def numa_node_from_sysfs(sysfs: Path, bus_id: str) -> int | None:
    """Return what the kernel says of the device `bus_id` (sysfs has domains of four digits)."""
    domain, _, rest = bus_id.partition(":")
    path = sysfs / "bus/pci/devices" / f"{int(domain, 16):04x}:{rest.lower()}" / "numa_node"
    try:
        node = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _optional(function: Callable[[], _Answer]) -> _Answer | None:
    """Return the answer of `function`, None where driver or GPU do not support it."""
    try:
        return function()
    except pynvml.NVMLError as error:
        if error.value in _NO_SUCH_FACT:
            return None
        raise


def _in_mig_mode(handle: _Handle) -> bool:
    mode = _optional(lambda: pynvml.nvmlDeviceGetMigMode(handle))
    return mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def _read_links(handle: _Handle, index_of_bus: dict[str, int]) -> tuple[NvLink, ...]:
    links = []
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if pynvml.nvmlDeviceGetNvLinkState(handle, number) != pynvml.NVML_FEATURE_ENABLED:
                continue
            peer = _link_peer(handle, number, index_of_bus)
        except _UnseenPeerError as unseen:
            log.info("NVLink %d leads to %s, which this node does not show: not counted", number, unseen)
            continue
        except pynvml.NVMLError as error:
            if error.value not in _NO_SUCH_LINK:
                log.warning("NVLink %d cannot be read (%s): not counted", number, error)
            continue
        links.append(NvLink(number, peer, _link_generation(handle, number)))
    return tuple(links)


class _UnseenPeerError(Exception):
    """A link ends at a device that is no GPU of this machine and no switch."""


def _link_peer(handle: _Handle, number: int, index_of_bus: dict[str, int]) -> int | None:
    """Return the GPU at the other end, None for an NVSwitch.

    A virtual machine may hide the switches: a link whose other end is unknown counts as one to a switch. A
    link to a GPU that is not of this machine counts for nothing, or two such GPUs would seem joined.
    """
    try:
        kind = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, number)
    except pynvml.NVMLError as error:
        if error.value not in _NO_SUCH_LINK:
            raise
        kind = pynvml.NVML_NVLINK_DEVICE_TYPE_UNKNOWN
    if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return None
    try:
        bus_id = normal_bus_id(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, number).busId)
    except pynvml.NVMLError as error:
        if error.value not in _NO_SUCH_LINK:
            raise
        bus_id = ""
    if bus_id in index_of_bus:
        return index_of_bus[bus_id]
    if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_UNKNOWN:
        return None
    raise _UnseenPeerError(bus_id or "a device without a bus id")


def _link_generation(handle: _Handle, number: int) -> int:
    architecture = _optional(lambda: pynvml.nvmlDeviceGetArchitecture(handle))
    known = NVLINK_GENERATION_OF_ARCHITECTURE.get(architecture)
    if known is not None:
        return known
    version = _optional(lambda: pynvml.nvmlDeviceGetNvLinkVersion(handle, number))
    return NVLINK_GENERATION_OF_VERSION.get(version, 0) if version is not None else 0


def _minor_number(handle: _Handle) -> int | None:
    try:
        number: int = pynvml.nvmlDeviceGetMinorNumber(handle)
    except pynvml.NVMLError:
        return None
    return number


def _with_links(gpu: Gpu, links: tuple[NvLink, ...]) -> Gpu:
    return Gpu(gpu.index, gpu.uuid, gpu.product, gpu.memory_mib, gpu.pci_bus_id, gpu.numa_node, nvlinks=links)


def _ancestor(a: _Handle, b: _Handle) -> PcieAncestor:
    """Return the nearest common ancestor; the farthest where the driver does not tell."""
    try:
        return PcieAncestor(pynvml.nvmlDeviceGetTopologyCommonAncestor(a, b))
    except (pynvml.NVMLError, ValueError):
        return PcieAncestor.SYSTEM
