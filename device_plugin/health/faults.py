"""The faults of one GPU or slice, how long each lasts, and the condition that comes of them. Pure.

A fault begins at once. It ends when it has not been seen for a while, so that a GPU that fails again and
again is not offered in between; the while doubles with each failure within an hour, up to an hour.
"""

from dataclasses import dataclass, field

from mcp2026.api.gpu_topology import GpuHealth
from mcp2026.device_plugin.devices import GpuCondition

FLAPPING_S = 3600.0
"""Failures within this time make the next recovery slower."""
LONGEST_QUIET_S = 3600.0
MOST_DOUBLINGS = 16
"""More make no difference to waits of a second or longer, and too many no number."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong. `until_reset`: quiet alone does not end it."""

    health: GpuHealth
    reason: str
    message: str
    until_reset: bool = False


@dataclass(slots=True)
class _Running:
    fault: Fault
    seen_at: float


@dataclass(slots=True)
class FaultLog:
    """The faults of one GPU or slice that have not ended; `recover_after_s` of quiet ends one."""

    recover_after_s: float
    _running: dict[str, _Running] = field(default_factory=dict)
    _failures: list[float] = field(default_factory=list)

    def note(self, key: str, fault: Fault, now: float) -> None:
        """Take note that `fault` is there at `now`; a fault with the same key is the same fault."""
        if fault.health == "Unhealthy" and not self._unhealthy:
            recent = (at for at in self._failures if now - at < FLAPPING_S)
            self._failures = [*recent, now][-MOST_DOUBLINGS - 1 :]
        self._running[key] = _Running(fault, now)

    def reset(self) -> None:
        """Take note that the GPU was reset: what only a reset mends is mended."""
        self._running = {
            key: running for key, running in self._running.items() if not running.fault.until_reset
        }

    def forget(self, key: str) -> None:
        """End the fault `key` at once."""
        self._running.pop(key, None)

    def expire(self, now: float) -> None:
        """End the faults that have not been seen for long enough."""
        quiet_s = self.quiet_s(now)
        self._running = {
            key: running
            for key, running in self._running.items()
            if running.fault.until_reset or now - running.seen_at < quiet_s
        }

    def quiet_s(self, now: float) -> float:
        """Return for how long a fault must not be seen to have ended."""
        failures = sum(now - at < FLAPPING_S for at in self._failures)
        longest = max(LONGEST_QUIET_S, self.recover_after_s)
        doublings = min(max(failures - 1, 0), MOST_DOUBLINGS)
        return min(self.recover_after_s * 2.0**doublings, longest)

    def condition(self) -> GpuCondition | None:
        """Return the worst of the faults, with the others named; None without any."""
        if not self._running:
            return None
        worst, *others = sorted(
            (running.fault for running in self._running.values()),
            key=lambda fault: (fault.health != "Unhealthy", not fault.until_reset),
        )
        message = "; ".join([worst.message, *(f"also: {fault.message}" for fault in others)])
        return GpuCondition(worst.health, worst.reason, message)

    @property
    def _unhealthy(self) -> bool:
        return any(running.fault.health == "Unhealthy" for running in self._running.values())
