"""Starting and stopping NVML, under a deadline.

NVML counts how often it was started; the driver and the event source each start and stop it for themselves.
"""

from contextlib import suppress
from dataclasses import dataclass
from threading import Event

import pynvml

from mcp2026.device_plugin.adapters.nvml.calls import CallError, Calls
from mcp2026.device_plugin.adapters.nvml.deadlines import (
    DeadlineCaller,
    HangingCallError,
    TooManyHangingError,
)
from mcp2026.device_plugin.errors import (
    DriverNotRunningError,
    DriverTooOldError,
    NoDriverLibraryError,
    NvmlError,
)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds after which a call counts as one that hangs.

    `open_s`: starting NVML wakes all GPUs, a second or two each where no persistence daemon runs. `answer_s`:
    all that is asked of one GPU at once. `change_s`: a change of the MIG mode resets the GPU. `close_s`: how
    long closing waits.
    """

    open_s: float = 60.0
    answer_s: float = 10.0
    change_s: float = 60.0
    close_s: float = 1.0


def start_nvml(caller: DeadlineCaller, timeout_s: float) -> None:
    """Start NVML; if that fails, `caller` is closed, and a start that hangs is undone once it succeeds.

    Raises:
        NoDriverLibraryError: there is no libnvidia-ml.so.1.
        DriverTooOldError: the library has no nvmlInitWithFlags.
        DriverNotRunningError: the library cannot reach the kernel module.

    """
    calls = Calls()
    started = Event()

    def start() -> None:
        calls.ask(pynvml.nvmlInit)
        started.set()

    def undo() -> None:
        if started.is_set():
            stop_nvml()

    try:
        caller.call("", start, timeout_s, lambda: calls.now)
    except (CallError, HangingCallError, TooManyHangingError) as error:
        caller.close(undo, 0.0)
        raise _why_not_started(error) from error


def _why_not_started(error: Exception) -> NvmlError:
    if not isinstance(error, CallError):
        return DriverNotRunningError(str(error))
    if error.code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return NoDriverLibraryError()
    if error.code == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
        return DriverTooOldError("nvmlInitWithFlags", "")
    return DriverNotRunningError(error.reason)


def stop_nvml() -> None:
    """Stop NVML; an error of the driver is of no interest any more."""
    with suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()
