"""How long the kernel lets a thread run before another one may (decision 0123)."""

import ctypes
import logging
import os
import platform
import struct
import threading
from typing import Final

log = logging.getLogger(__name__)

SHORTEST_NS: Final = 100_000
"""The kernel takes no less."""
USUAL_NS: Final = 0
"""As long as the kernel finds right."""
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
"""Numbers of the system call; the C library has no function for it."""
_STRUCT: Final = "IIQiIQQQII"
"""`struct sched_attr`, version 1 (sched_setattr(2)): size, policy, flags, nice, priority, runtime, deadline,
period, and two clamps."""


def ask_for_slices(nanoseconds: int) -> None:
    """Ask for slices of this length, for the calling thread and for all that it will start.

    A thread that wakes up interrupts one with longer slices. Linux knows it since 6.12; before, and where the
    call is forbidden or unknown, everything stays as it is.

    Args:
        nanoseconds: at least SHORTEST_NS, or USUAL_NS.

    """
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    attributes = struct.pack(
        _STRUCT, struct.calcsize(_STRUCT), os.SCHED_OTHER, 0, nice, 0, nanoseconds, 0, 0, 0, 0
    )
    system = ctypes.CDLL(None, use_errno=True)
    if system.syscall(number, 0, attributes, 0) != 0:
        log.debug("time slices stay as they are: %s", os.strerror(ctypes.get_errno()))
