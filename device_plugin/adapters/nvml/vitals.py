"""How is a GPU now? About ten calls, and one for each link that ought to be up."""

import ctypes
from collections.abc import Iterable
from typing import Any

import pynvml

from mcp2026.device_plugin.adapters.nvml.calls import Calls, number_between
from mcp2026.device_plugin.adapters.nvml.links import down_links
from mcp2026.device_plugin.driver import Vitals

THERMAL_SLOWDOWN = (
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown | pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
)

RECOVERY_ACTIONS = {
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "reset the GPU",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "reboot the node",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "end the programs that use it with its peers",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "drain the GPU, then reset it",
    pynvml.NVML_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN: "recover the IMEX domain",
    pynvml.NVML_GPU_RECOVERY_ACTION_BUS_RESET: "reset the bus",
    pynvml.NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT: "reboot the system",
}
"""`nvmlDeviceGpuRecoveryAction_t` in words."""

_RESET_IT = "reset it once its pods have ended"

HOTTEST = 200
"""°C; more is nonsense."""
MOST_MEMORY_MIB = 1 << 24
"""16 TiB; more is nonsense."""
MOST_ERRORS = (1 << 64) - 2
"""All ones is how NVML says that it does not know."""


def read_vitals(calls: Calls, handle: Any, expected_links: Iterable[int]) -> Vitals:
    """Return how the GPU is; `CallError` if it does not answer."""
    memory = _memory(calls, handle)
    rates = calls.fact(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return Vitals(
        inactive_links=down_links(calls, handle, expected_links),
        thermal_slowdown=bool(_clocks_event_reasons(calls, handle) & THERMAL_SLOWDOWN),
        temperature=number_between(
            calls.fact(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU), 0, HOTTEST
        ),
        uncorrected_ecc_errors=number_between(
            calls.fact(
                pynvml.nvmlDeviceGetTotalEccErrors,
                handle,
                pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                pynvml.NVML_VOLATILE_ECC,
            ),
            0,
            MOST_ERRORS,
        ),
        pending_repair=_pending_repair(calls, handle),
        memory_used_mib=number_between(memory, 0, MOST_MEMORY_MIB),
        busy=number_between(rates.gpu, 0, 100) if rates is not None else None,
        recovery_action=_recovery_action(calls, handle),
        fabric_failure=_fabric_failure(calls, handle),
    )


def probe(calls: Calls, handle: Any) -> None:
    """Raise `CallError` if the GPU does not answer."""
    _memory(calls, handle)


def _memory(calls: Calls, handle: Any) -> int | None:
    """Return MiB; None where the GPU shares the CPU's memory, or is in MIG mode and we are not root."""
    answer = calls.optional(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return None if answer is None else answer.used >> 20


def _clocks_event_reasons(calls: Calls, handle: Any) -> int:
    reasons = calls.fact(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if reasons is None:  # before driver 535
        reasons = calls.fact(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    known = number_between(reasons, 0, pynvml.nvmlClocksThrottleReasonAll)
    return known or 0


def _pending_repair(calls: Calls, handle: Any) -> str:
    rows = calls.fact(pynvml.nvmlDeviceGetRemappedRows, handle)
    if rows is not None:
        _, _, pending, failed = rows
        if failed == 1:
            return "row remapping failed: the board has to be exchanged"
        return f"row remapping is pending: {_RESET_IT}" if pending == 1 else ""
    pages = calls.fact(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
    return f"page retirement is pending: {_RESET_IT}" if pages == 1 else ""


def _recovery_action(calls: Calls, handle: Any) -> str:
    values = calls.fact(pynvml.nvmlDeviceGetFieldValues, handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if values is None or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return ""
    return RECOVERY_ACTIONS.get(values[0].value.uiVal, "")


def _fabric_failure(calls: Calls, handle: Any) -> str:
    """Return why the GPU, though its links are up, is not part of the NVSwitches' fabric; since Hopper."""
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    if calls.fact(pynvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info)) is None:
        return ""
    if info.state in (pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED, pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS):
        return "it has not joined the NVSwitch fabric"
    if info.state == pynvml.NVML_GPU_FABRIC_STATE_COMPLETED and info.status != pynvml.NVML_SUCCESS:
        return f"it could not join the NVSwitch fabric (NVML error {info.status})"
    return ""
