"""The driver of this node's GPUs, asked through pynvml: `mcp2026.device_plugin.driver.Driver`.

Each call is done in a thread with a deadline (`deadlines`); what is asked and what it means is in the modules
beside this one. Used at start, by the health probe and to change MIG and compute modes; never while the
kubelet waits.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pynvml

from mcp2026.api.gpu_topology import MOST_GPUS
from mcp2026.device_plugin.adapters.nvml import mig, processes, vitals
from mcp2026.device_plugin.adapters.nvml.calls import DRIVER_GONE, NONSENSE, CallError, Calls
from mcp2026.device_plugin.adapters.nvml.deadlines import (
    DeadlineCaller,
    HangingCallError,
    TooManyHangingError,
    Work,
)
from mcp2026.device_plugin.adapters.nvml.gpu_reading import (
    GpuReading,
    doubles,
    driver_version,
    learn_links,
    linked_gpu,
    read_ancestors,
    read_gpu,
    read_system,
)
from mcp2026.device_plugin.adapters.nvml.links import KnownLinks, down_links
from mcp2026.device_plugin.adapters.nvml.opening import Deadlines, start_nvml, stop_nvml
from mcp2026.device_plugin.driver import ComputeMode, GpuProcess, Reading, Vitals
from mcp2026.device_plugin.errors import (
    DriverNotRunningError,
    DriverTooOldError,
    GpuCallError,
)
from mcp2026.topology.machine import Gpu, Machine, PcieAncestor
from mcp2026.topology.mig.geometry import MigInstance, MigProfile

log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

SYSTEM = "the driver"
"""The subject of calls that concern no GPU."""


class NvmlDriver:
    """The NVIDIA driver of this node, between `open` and `close`. Not for use by two threads at once."""

    def __init__(self, sysfs: Path = Path("/sys"), deadlines: Deadlines | None = None) -> None:
        self._sysfs = sysfs
        self._deadlines = deadlines or Deadlines()
        self._caller = DeadlineCaller("nvml")
        self._links = KnownLinks()
        self._version = ""
        self._indices: dict[str, int] = {}

    @classmethod
    def open(cls, deadlines: Deadlines | None = None) -> Self:
        """Start NVML.

        Raises:
            NoDriverLibraryError: there is no libnvidia-ml.so.1.
            DriverNotRunningError: the library cannot reach the kernel module, or hangs.
            DriverTooOldError: the library has no nvmlInitWithFlags.

        """
        driver = cls(deadlines=deadlines)
        start_nvml(driver._caller, driver._deadlines.open_s)
        return driver

    def close(self) -> None:
        """Stop NVML; while calls hang, the one that returns last does it."""
        self._caller.close(stop_nvml, self._deadlines.close_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- all GPUs ----

    def read(self, name: str) -> Reading:
        """Read all GPUs and their links as the machine `name`.

        A GPU that does not answer, or has the UUID of another one, is left out and named in `unreadable`.
        Where the driver tells no size of memory (GPUs that share the CPU's), it is 0.

        Raises:
            DriverTooOldError: a function is missing that has no substitute.
            DriverNotRunningError: the driver as a whole refuses or hangs.

        """
        self._version = self._of_system(driver_version)
        system = self._of_system(read_system)
        readings, unreadable = self._read_gpus(system.count)
        self._indices = {reading.gpu.uuid: index for index, reading in readings.items()}
        gpus = self._with_links(readings)
        ancestors = self._ancestors({index: readings[index].handle for index in gpus})
        present = {gpu.uuid: readings[index] for index, gpu in gpus.items()}
        machine = Machine(name, tuple(gpus.values()), ancestors, self._version, system.cuda)
        return Reading(
            machine,
            unreadable,
            minor_numbers=_told({uuid: reading.minor_number for uuid, reading in present.items()}),
            compute_capabilities=_told(
                {uuid: reading.compute_capability for uuid, reading in present.items()}
            ),
            mig_instances={uuid: one.mig.instances for uuid, one in present.items() if one.mig is not None},
            bare_mig_instances={
                uuid: one.mig.bare for uuid, one in present.items() if one.mig and one.mig.bare
            },
        )

    def answering(self, indices: Sequence[int]) -> frozenset[int]:
        """Return which of the GPUs with these NVML indices, left out before, can be read now."""
        works = {_subject(index): partial(_read_uuid, index) for index in indices}
        outcomes = dict(zip(indices, self._call_each(works).values(), strict=True))
        return frozenset(index for index, outcome in outcomes.items() if _succeeds(outcome))

    # ---- one GPU ----

    def vitals(self, uuids: Sequence[str]) -> dict[str, Vitals]:
        """Return how the GPUs are; one that does not answer is told in `failure`, not raised.

        Many that hang cost one deadline.

        Raises:
            DriverNotRunningError: no GPU answers because the driver is gone.

        """
        works = {
            self._subject_of(uuid): partial(_with_handle, uuid, self._reading_vitals(uuid)) for uuid in uuids
        }
        outcomes = zip(uuids, self._call_each(works).values(), strict=True)
        return {uuid: self._vitals(uuid, outcome) for uuid, outcome in outcomes}

    def _reading_vitals(self, uuid: str) -> Callable[[Calls, Any], Vitals]:
        expected = self._links.expected(uuid)
        return lambda calls, handle: vitals.read_vitals(calls, handle, expected)

    def _vitals(self, uuid: str, outcome: Callable[[], Vitals]) -> Vitals:
        try:
            return self._told_of(uuid, outcome)
        except GpuCallError as error:
            return Vitals(failure=_in_short(error))

    def failure(self, uuid: str) -> str | None:
        """Return why the GPU does not work, None when it answers. A cheap probe: two calls.

        Raises:
            DriverNotRunningError: no GPU answers because the driver is gone.

        """
        try:
            self._of_gpu(uuid, vitals.probe)
        except GpuCallError as error:
            return _in_short(error)
        return None

    def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        """Return the processes that compute on the GPU or its MIG devices, MPS clients among them."""
        return self._of_gpu(uuid, processes.read_processes)

    def compute_mode(self, uuid: str) -> ComputeMode:
        """Return who may have contexts on the GPU."""
        return self._of_gpu(uuid, processes.read_compute_mode)

    def set_compute_mode(self, uuid: str, mode: ComputeMode) -> None:
        """Set who may have contexts on the GPU."""
        self._of_gpu(uuid, lambda calls, handle: processes.set_compute_mode(calls, handle, mode))

    # ---- MIG ----

    def mig_profiles(self, uuid: str) -> tuple[MigProfile, ...]:
        """Return the profiles that the GPU has, with all their placements; empty where it has no MIG."""
        return self._of_gpu(uuid, mig.read_profiles)

    def set_mig_mode(self, uuid: str, enabled: bool) -> None:
        """Switch MIG mode; `GpuCallError` says so where a reset of the GPU would be needed first."""
        self._change(uuid, lambda calls, handle: mig.set_mode(calls, handle, enabled))

    def create_mig_instance(self, uuid: str, profile: MigProfile, start: int) -> MigInstance:
        """Make a GPU instance at memory slice `start`, with one compute instance that fills it."""
        return self._change(uuid, lambda calls, handle: mig.create_instance(calls, handle, profile, start))

    def destroy_mig_instance(self, uuid: str, instance: MigInstance) -> None:
        """Remove a GPU instance and its compute instances.

        It is refused while a process uses it, and when its numbers belong to another MIG device by now.
        """
        self._change(uuid, lambda calls, handle: mig.destroy_instance(calls, handle, instance))

    # ---- how read goes about it ----

    def _of_system(self, work: Callable[[Calls], _Answer]) -> _Answer:
        try:
            return self._call(SYSTEM, work, self._deadlines.answer_s)
        except CallError as error:
            if error.code == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise DriverTooOldError(error.function, self._version) from error
            raise DriverNotRunningError(error.reason) from error
        except HangingCallError as error:
            raise DriverNotRunningError(str(error)) from error

    def _read_gpus(self, count: int) -> tuple[dict[int, GpuReading], dict[int, str]]:
        """Return what can be read, and why the rest cannot, by index."""
        if count > MOST_GPUS:
            log.error("the driver tells of %d GPUs: the first %d are read", count, MOST_GPUS)
        readings: dict[int, GpuReading] = {}
        errors: dict[int, CallError] = {}
        unreadable: dict[int, str] = {}
        indices = range(min(count, MOST_GPUS))
        works = {_subject(index): partial(_read_gpu_at, index, self._sysfs) for index in indices}
        for index, outcome in zip(indices, self._call_each(works).values(), strict=True):
            try:
                readings[index] = outcome()
            except HangingCallError as error:
                unreadable[index] = f"{error.at} has not returned after {error.seconds:.3g} s"
            except CallError as error:
                if count > MOST_GPUS and error.code == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                    continue  # there is no such GPU: the count is nonsense
                errors[index] = error
                unreadable[index] = _reason(error)
        if not readings and errors.keys() == unreadable.keys():
            self._raise_for_all(errors.values())
        unreadable |= (double := doubles(readings))
        for index in sorted(unreadable):
            log.warning("GPU %d cannot be read (%s): it is not offered", index, unreadable[index])
        return {index: one for index, one in readings.items() if index not in double}, unreadable

    def _raise_for_all(self, errors: Iterable[CallError]) -> None:
        """Raise if no GPU can be read for a reason that is the driver's, not theirs."""
        all_errors = list(errors)
        codes = {error.code for error in all_errors}
        if codes == {pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}:
            raise DriverTooOldError(all_errors[0].function, self._version)
        if codes and codes <= DRIVER_GONE:
            raise DriverNotRunningError(all_errors[0].reason)

    def _with_links(self, readings: Mapping[int, GpuReading]) -> dict[int, Gpu]:
        index_of_bus = {reading.gpu.pci_bus_id: index for index, reading in readings.items()}
        gpus = {index: linked_gpu(reading, index_of_bus) for index, reading in readings.items()}
        learn_links(self._links, gpus, readings)
        return {index: self._with_down_links(gpu, readings[index]) for index, gpu in gpus.items()}

    def _with_down_links(self, gpu: Gpu, reading: GpuReading) -> Gpu:
        missing = self._links.expected(gpu.uuid) - {link.number for link in reading.links}
        if not missing:
            return gpu
        work = partial(_down_links, reading.handle, missing)
        try:
            down = self._call(_subject(gpu.index), work, self._deadlines.answer_s)
        except (CallError, HangingCallError) as error:
            log.warning("which links of GPU %d are down is not known (%s)", gpu.index, error)
            return gpu
        return replace(gpu, inactive_links=down)

    def _ancestors(self, handles: Mapping[int, Any]) -> tuple[tuple[PcieAncestor | None, ...], ...]:
        """Return the matrix; from the first call on that hangs all are taken for the farthest."""
        rows = []
        hanging = False
        for index, handle in handles.items():
            others = {} if hanging else {other: it for other, it in handles.items() if other != index}
            found: dict[int, PcieAncestor] = {}
            try:
                work = partial(_read_ancestors, handle, others)
                found = self._call(_subject(index), work, self._deadlines.answer_s)
            except HangingCallError as error:
                log.warning("PCIe ancestors cannot be had (%s): they are taken for the farthest", error)
                hanging = True
            rows.append(tuple(None if i == index else found.get(i, PcieAncestor.SYSTEM) for i in handles))
        return tuple(rows)

    # ---- how a call is made ----

    def _of_gpu(self, uuid: str, work: Callable[[Calls, Any], _Answer]) -> _Answer:
        return self._about(uuid, partial(_with_handle, uuid, work), self._deadlines.answer_s)

    def _change(self, uuid: str, work: Callable[[Calls, Any], _Answer]) -> _Answer:
        return self._about(uuid, partial(_with_handle, uuid, work), self._deadlines.change_s)

    def _subject_of(self, uuid: str) -> str:
        return _subject(self._indices[uuid]) if uuid in self._indices else uuid

    def _about(self, uuid: str, work: Callable[[Calls], _Answer], timeout_s: float) -> _Answer:
        return self._told_of(uuid, lambda: self._call(self._subject_of(uuid), work, timeout_s))

    def _told_of(self, gpu: str, outcome: Callable[[], _Answer]) -> _Answer:
        """Return what `outcome` returns, or raise what it raises as an error of the GPU or the driver."""
        try:
            return outcome()
        except HangingCallError as error:
            reason = f"has not returned after {error.seconds:.3g} s"
            raise GpuCallError(gpu, error.at, reason) from error
        except CallError as error:
            if error.code in DRIVER_GONE:
                self._of_system(_count)  # raises, unless the driver is well and this GPU alone says so
            raise GpuCallError(gpu, error.function, error.reason) from error

    def _call(self, subject: str, work: Callable[[Calls], _Answer], timeout_s: float) -> _Answer:
        calls = Calls()
        try:
            return self._caller.call(subject, partial(work, calls), timeout_s, lambda: calls.now)
        except TooManyHangingError as error:
            raise DriverNotRunningError(str(error)) from error

    def _call_each(self, works: Mapping[str, Callable[[Calls], _Answer]]) -> dict[str, Callable[[], _Answer]]:
        """Do each work, by subject; return for each what returns or raises as `_call` would."""
        outcomes = self._caller.call_each(
            {subject: _as_work(work) for subject, work in works.items()}, self._deadlines.answer_s
        )
        return {subject: partial(_unless_too_many, outcome) for subject, outcome in outcomes.items()}


def _subject(index: int) -> str:
    return f"GPU {index}"


def _as_work(work: Callable[[Calls], _Answer]) -> Work:
    calls = Calls()
    return Work(partial(work, calls), lambda: calls.now)


def _unless_too_many(outcome: Callable[[], _Answer]) -> _Answer:
    try:
        return outcome()
    except TooManyHangingError as error:
        raise DriverNotRunningError(str(error)) from error


def _succeeds(outcome: Callable[[], object]) -> bool:
    try:
        outcome()
    except (CallError, HangingCallError, DriverNotRunningError):
        return False
    return True


def _with_handle(uuid: str, work: Callable[[Calls, Any], _Answer], calls: Calls) -> _Answer:
    return work(calls, calls.ask(pynvml.nvmlDeviceGetHandleByUUID, uuid))


def _read_gpu_at(index: int, sysfs: Path, calls: Calls) -> GpuReading:
    return read_gpu(calls, index, sysfs)


def _count(calls: Calls) -> int:
    count: int = calls.ask(pynvml.nvmlDeviceGetCount)
    return count


def _read_uuid(index: int, calls: Calls) -> str:
    return calls.text(pynvml.nvmlDeviceGetUUID, calls.ask(pynvml.nvmlDeviceGetHandleByIndex, index))


def _down_links(handle: Any, expected: frozenset[int], calls: Calls) -> tuple[int, ...]:
    return down_links(calls, handle, expected)


def _read_ancestors(handle: Any, others: Mapping[int, Any], calls: Calls) -> dict[int, PcieAncestor]:
    return read_ancestors(calls, handle, others)


def _reason(error: CallError) -> str:
    """Return NVML's words alone; of what we say ourselves the function, too."""
    return str(error) if error.code == NONSENSE else error.reason


def _in_short(error: GpuCallError) -> str:
    cause = error.__cause__
    return _reason(cause) if isinstance(cause, CallError) else f"{error.call} {error.reason}"


def _told(facts: Mapping[str, _Answer | None]) -> dict[str, _Answer]:
    return {uuid: fact for uuid, fact in facts.items() if fact is not None}
