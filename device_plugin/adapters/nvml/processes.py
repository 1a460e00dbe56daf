"""Who uses a GPU, and who may."""

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml

from mcp2026.device_plugin.adapters.nvml.calls import NO_SUCH_FACT, NONSENSE, CallError, Calls, number_between
from mcp2026.device_plugin.driver import ComputeMode, GpuProcess

MOST_PROCESSES = 1024
MOST_MEMORY_MIB = 1 << 24
NO_INSTANCE = 0xFFFFFFFF

COMPUTE_MODES = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: ComputeMode.DEFAULT,
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: ComputeMode.EXCLUSIVE_PROCESS,
    pynvml.NVML_COMPUTEMODE_PROHIBITED: ComputeMode.PROHIBITED,
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: ComputeMode.EXCLUSIVE_PROCESS,
}
NUMBER_OF_MODE = {mode: number for number, mode in COMPUTE_MODES.items()}
"""Of two numbers of a mode the last: the one for threads is not settable any more."""


def read_processes(calls: Calls, handle: Any) -> tuple[GpuProcess, ...]:
    """Return the processes that compute on the GPU, MPS clients among them, by number."""
    found = _processes_or_older(calls, handle)
    try:
        found |= _list(calls, "nvmlDeviceGetMPSComputeRunningProcesses_v3", handle)
    except CallError as error:
        if error.code not in NO_SUCH_FACT:
            raise
    return tuple(found[pid] for pid in sorted(found))


def read_compute_mode(calls: Calls, handle: Any) -> ComputeMode:
    """Return who may have contexts on the GPU; a GPU that has no modes is in the default one."""
    number = calls.optional(pynvml.nvmlDeviceGetComputeMode, handle)
    if number is None:
        return ComputeMode.DEFAULT
    try:
        return COMPUTE_MODES[number]
    except KeyError:
        raise CallError("nvmlDeviceGetComputeMode", NONSENSE, f"there is no mode {number}") from None


def set_compute_mode(calls: Calls, handle: Any, mode: ComputeMode) -> None:
    """Set who may have contexts on the GPU; a mode that it is in already is not set again."""
    if read_compute_mode(calls, handle) != mode:
        calls.ask(pynvml.nvmlDeviceSetComputeMode, handle, NUMBER_OF_MODE[mode])


def _processes_or_older(calls: Calls, handle: Any) -> dict[int, GpuProcess]:
    try:
        return _list(calls, "nvmlDeviceGetComputeRunningProcesses_v3", handle)
    except CallError as error:
        if error.code != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
    return _list(calls, "nvmlDeviceGetComputeRunningProcesses_v2", handle)


def _list(calls: Calls, symbol: str, handle: Any) -> dict[int, GpuProcess]:
    """Call with an array of fixed size: pynvml makes one as large as the driver says, whatever it says."""
    processes = (pynvml.c_nvmlProcessInfo_v3_t * MOST_PROCESSES)()
    count = ctypes.c_uint(MOST_PROCESSES)
    calls.ask(_function(symbol), handle, ctypes.byref(count), processes)
    if count.value > MOST_PROCESSES:
        raise CallError(symbol, NONSENSE, f"tells of {count.value} processes")
    return {process.pid: _process(process) for process in processes[: count.value]}


def _process(told: Any) -> GpuProcess:
    memory = number_between(told.usedGpuMemory >> 20, 0, MOST_MEMORY_MIB)
    instance = None if told.gpuInstanceId == NO_INSTANCE else told.gpuInstanceId
    return GpuProcess(told.pid, memory, instance)


def _function(symbol: str) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        try:
            function = getattr(pynvml.nvmlLib, symbol)
        except AttributeError:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None
        code = function(*arguments)
        if code != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(code)

    call.__name__ = symbol
    return call
