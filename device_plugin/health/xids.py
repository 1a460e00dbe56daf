"""What the known XIDs mean for placing work on a GPU, and what to do about each.

Source: NVIDIA, "Xid Errors" (docs.nvidia.com/deploy/xid-errors) and "GPU Debug Guidelines". An XID that is
not here makes the GPU unhealthy until it has been quiet for a while.
"""

from dataclasses import dataclass
from enum import StrEnum


class Cure(StrEnum):
    """What ends the fault."""

    TIME = "time"
    """It is over when the GPU has answered cleanly for a while."""
    RESET = "reset"
    """It lasts until the GPU was reset: it went and came back, or the driver was loaded anew."""


@dataclass(frozen=True, slots=True)
class XidMeaning:
    """What happened and what to do, each a clause; `degraded`: the GPU stays usable meanwhile."""

    happened: str
    advice: str
    cure: Cure = Cure.TIME
    degraded: bool = False


_RESET_IT = "reset it by `nvidia-smi --gpu-reset` once its pods have ended"
_PROGRAM_ENDS = "programs that used it have ended; nothing else needs to be done unless it comes again"

MEANINGS = {
    38: XidMeaning("its firmware met an error", _RESET_IT, Cure.RESET),
    46: XidMeaning("it stopped processing", _RESET_IT, Cure.RESET),
    48: XidMeaning("its memory has an error that could not be corrected", _RESET_IT, Cure.RESET),
    61: XidMeaning("an internal micro-controller stopped at a breakpoint", _RESET_IT, Cure.RESET),
    62: XidMeaning("an internal micro-controller halted", _RESET_IT, Cure.RESET),
    63: XidMeaning(
        "a repair of its memory was recorded and takes effect with a reset", _RESET_IT, degraded=True
    ),
    64: XidMeaning(
        "a repair of its memory could not be recorded",
        f"{_RESET_IT}; if it comes again, have it replaced",
        Cure.RESET,
    ),
    69: XidMeaning("its graphics engine refused a command", _PROGRAM_ENDS),
    74: XidMeaning(
        "an NVLink failed",
        f"{_RESET_IT}; if it comes again, check the link's other end and the bridge",
        Cure.RESET,
    ),
    79: XidMeaning(
        "it has fallen off the PCIe bus", "reboot the node; if it comes again, check power, seat and cooling"
    ),
    92: XidMeaning(
        "its memory has many corrected errors", "run a field diagnostic when it is free", degraded=True
    ),
    94: XidMeaning("its memory had an error that was contained", _PROGRAM_ENDS),
    95: XidMeaning("its memory had an error that was not contained", _RESET_IT, Cure.RESET),
    110: XidMeaning("a security fault stopped it", "reboot the node", Cure.RESET),
    119: XidMeaning("its system processor did not answer the driver", _RESET_IT, Cure.RESET),
    120: XidMeaning("its system processor failed", _RESET_IT, Cure.RESET),
    140: XidMeaning("its memory has an error that could not be recovered from", _RESET_IT, Cure.RESET),
    143: XidMeaning("it could not be initialised", "reboot the node", Cure.RESET),
}


def meaning_of(code: int) -> XidMeaning:
    """Return what the XID `code` means; of an unknown one, that NVIDIA's catalogue tells."""
    unknown = XidMeaning("the driver reported a fault", "look it up in NVIDIA's catalogue of XIDs")
    return MEANINGS.get(code, unknown)
