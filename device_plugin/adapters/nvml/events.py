"""What the driver tells of its own accord: faults by number, errors of memory, GPUs that went away.

NVML keeps the events of an event set until they are fetched, so none is missed between two waits.
"""

import ctypes
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar

import pynvml

from mcp2026.api.gpu_topology import MOST_GPUS
from mcp2026.device_plugin.adapters.nvml import mig
from mcp2026.device_plugin.adapters.nvml.calls import CallError, Calls
from mcp2026.device_plugin.adapters.nvml.deadlines import (
    DeadlineCaller,
    HangingCallError,
    TooManyHangingError,
)
from mcp2026.device_plugin.adapters.nvml.opening import Deadlines, start_nvml, stop_nvml
from mcp2026.device_plugin.driver import EventKind, GpuEvent
from mcp2026.device_plugin.errors import DriverNotRunningError

log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

KINDS = {
    pynvml.nvmlEventTypeXidCriticalError: EventKind.XID,
    pynvml.nvmlEventTypeSingleBitEccError: EventKind.SINGLE_BIT_ECC,
    pynvml.nvmlEventTypeDoubleBitEccError: EventKind.DOUBLE_BIT_ECC,
    pynvml.nvmlEventTypeGpuUnavailableError: EventKind.UNAVAILABLE,
    pynvml.nvmlEventTypeGpuRecoveryAction: EventKind.RECOVERY_ACTION,
}
WANTED = sum(KINDS)

WHOLE_GPU = 0xFFFFFFFF
"""What NVML gives for the numbers of an instance when an event is of no instance."""
MOST_AT_ONCE = 256
"""Events that one wait returns at most; a storm of them shall not keep the caller from acting."""


class NvmlEvents:
    """An event source over all GPUs that answered when it was opened; `heard` has their UUIDs."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._caller = DeadlineCaller("nvml-events")
        self._set: Any = None
        self._uuids: dict[int, str] = {}

    @classmethod
    def open(cls, deadlines: Deadlines | None = None) -> Self:
        """Listen from now on; a GPU that tells nothing, or does not answer, is left out and logged.

        It keeps NVML open by itself: close the driver and this before NVML is opened anew.

        Raises:
            NoDriverLibraryError: there is no libnvidia-ml.so.1.
            DriverTooOldError: the library cannot be started.
            DriverNotRunningError: it does not start, or makes no event set.

        """
        events = cls(deadlines or Deadlines())
        start_nvml(events._caller, events._deadlines.open_s)
        try:
            events._call(events._listen, events._deadlines.open_s)
        except DriverNotRunningError:
            events.close()
            raise
        return events

    @property
    def heard(self) -> frozenset[str]:
        """The GPUs whose events come."""
        return frozenset(self._uuids.values())

    def wait(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        """Return what came within `timeout_s`, empty if nothing; `DriverNotRunningError` when deaf."""
        work = partial(self._wait, round(timeout_s * 1000))
        return self._call(work, timeout_s + self._deadlines.answer_s)

    def close(self) -> None:
        """Stop listening; a wait that is under way ends first, but not before this returns."""
        self._caller.close(self._stop, self._deadlines.close_s)

    def _call(self, work: Callable[[Calls], _Answer], timeout_s: float) -> _Answer:
        calls = Calls()
        try:
            return self._caller.call("events", partial(work, calls), timeout_s, lambda: calls.now)
        except (CallError, HangingCallError, TooManyHangingError) as error:
            raise DriverNotRunningError(f"no events: {error}") from error

    def _listen(self, calls: Calls) -> None:
        self._set = calls.ask(pynvml.nvmlEventSetCreate)
        for index in range(min(calls.ask(pynvml.nvmlDeviceGetCount), MOST_GPUS)):
            try:
                handle = calls.ask(pynvml.nvmlDeviceGetHandleByIndex, index)
                uuid = calls.text(pynvml.nvmlDeviceGetUUID, handle)
                types = WANTED & calls.ask(pynvml.nvmlDeviceGetSupportedEventTypes, handle)
                if types:
                    calls.ask(pynvml.nvmlDeviceRegisterEvents, handle, types, self._set)
                    self._uuids[_address(handle)] = uuid
                else:
                    log.info("GPU %d has no events: it is only probed", index)
            except CallError as error:
                log.warning("GPU %d is only probed: its events cannot be had (%s)", index, error)

    def _wait(self, timeout_ms: int, calls: Calls) -> tuple[GpuEvent, ...]:
        events: list[GpuEvent] = []
        while len(events) < MOST_AT_ONCE:
            try:
                data = calls.ask(pynvml.nvmlEventSetWait, self._set, 0 if events else timeout_ms)
            except CallError as error:
                if error.code != pynvml.NVML_ERROR_TIMEOUT and not events:
                    raise
                break
            if data.eventType not in KINDS:
                log.info("an event of type %#x is of no concern", data.eventType)
                break
            events.append(self._event(calls, data))
        return tuple(events)

    def _event(self, calls: Calls, data: Any) -> GpuEvent:
        kind = KINDS[data.eventType]
        code = data.eventData if kind is EventKind.XID else 0
        uuid = self._uuids.get(_address(data.device)) or _uuid(calls, data.device)
        mig_uuid = None
        if uuid is not None and data.gpuInstanceId != WHOLE_GPU:
            mig_uuid = _mig_uuid(calls, data)
        return GpuEvent(uuid, kind, code, mig_uuid)

    def _stop(self) -> None:
        if self._set is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(self._set)
        stop_nvml()


def _uuid(calls: Calls, device: Any) -> str | None:
    try:
        return calls.text(pynvml.nvmlDeviceGetUUID, device)
    except CallError as error:
        log.warning("an event is of a GPU that cannot be found (%s): it counts for all", error)
        return None


def _mig_uuid(calls: Calls, data: Any) -> str | None:
    """Return the MIG device that the event names; None, so that the GPU is meant, if it cannot be found."""
    try:
        return mig.uuid_of_instance(calls, data.device, data.gpuInstanceId, data.computeInstanceId)
    except CallError as error:
        log.warning("an event names a MIG device that cannot be found (%s): it counts for the GPU", error)
        return None


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
