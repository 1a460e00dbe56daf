"""How is each GPU, from the driver's events and from looking at it now and then? Pure, with a clock."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from mcp2026.device_plugin.devices import GpuCondition
from mcp2026.device_plugin.driver import EventKind, GpuEvent, Vitals
from mcp2026.device_plugin.health.faults import Fault, FaultLog
from mcp2026.device_plugin.health.settings import HealthSettings
from mcp2026.device_plugin.health.xids import Cure, meaning_of

NOT_ANSWERING = "NotAnswering"


@dataclass(slots=True)
class _Gpu:
    """What is known of a GPU, and of its slices by their UUIDs."""

    faults: FaultLog
    slices: dict[str, FaultLog] = field(default_factory=dict)
    answered: bool = True
    uncorrected: int | None = None
    hot_since: float | None = None

    def was_reset(self) -> None:
        self.faults.reset()
        for faults in self.slices.values():
            faults.reset()


class HealthMonitor:
    """Judges the GPUs of a node. Conditions are by UUID of the GPU, or of the slice."""

    def __init__(self, settings: HealthSettings) -> None:
        self._settings = settings
        self._gpus: dict[str, _Gpu] = {}
        self._driver_gone = False

    def tell(self, event: GpuEvent, known: Set[str], now: float) -> None:
        """Take an event of the driver; one of no GPU in particular is one of all `known` GPUs."""
        fault = self._fault_of(event)
        if fault is None:
            return
        key = f"{event.kind}-{event.code}"
        for uuid in known if event.uuid is None else (event.uuid,):
            gpu = self._gpu(uuid)
            faults = gpu.faults
            if event.mig_uuid is not None:
                faults = gpu.slices.setdefault(event.mig_uuid, self._new_log())
            faults.note(key, fault, now)

    def look(self, vitals: Mapping[str, Vitals], slices: Mapping[str, Set[str]], now: float) -> None:
        """Take how the GPUs are, and which slices each has: those that are gone take their faults along."""
        if self._driver_gone:
            self._driver_gone = False
            for gpu in self._gpus.values():
                gpu.was_reset()
        for uuid, how in vitals.items():
            gpu = self._gpu(uuid)
            self._look_at(gpu, how, now)
            gpu.slices = {name: log for name, log in gpu.slices.items() if name in slices.get(uuid, ())}

    def lose_driver(self) -> None:
        """Take note that the driver as a whole does not answer; when it does again, it was loaded anew."""
        self._driver_gone = True

    def conditions(self, now: float) -> dict[str, GpuCondition]:
        """Return the conditions of the GPUs and slices that are not healthy."""
        found: dict[str, GpuCondition] = {}
        for uuid, gpu in self._gpus.items():
            for name, faults in ((uuid, gpu.faults), *gpu.slices.items()):
                faults.expire(now)
                if condition := faults.condition():
                    found[name] = condition
        return found

    def _fault_of(self, event: GpuEvent) -> Fault | None:
        if event.kind is EventKind.DOUBLE_BIT_ECC:
            return _uncorrected()
        if event.kind is not EventKind.XID or event.code in self._settings.ignored:
            return None  # what the other kinds tell of shows in the vitals, which are looked at then
        meaning = meaning_of(event.code)
        return Fault(
            "Degraded" if meaning.degraded else "Unhealthy",
            f"Xid{event.code}",
            f"XID {event.code}: {meaning.happened}: {meaning.advice}",
            meaning.cure is Cure.RESET,
        )

    def _look_at(self, gpu: _Gpu, how: Vitals, now: float) -> None:
        if how.failure:
            gpu.answered = False
            message = f"it does not answer ({how.failure}): reset it, or reboot the node if that fails"
            gpu.faults.note(NOT_ANSWERING, Fault("Unhealthy", NOT_ANSWERING, message), now)
            return
        if not gpu.answered:
            gpu.answered = True
            gpu.was_reset()
        self._count_errors(gpu, how.uncorrected_ecc_errors, now)
        if how.pending_repair:
            gpu.faults.note("repair", Fault("Unhealthy", "PendingRepair", how.pending_repair), now)
        if how.fabric_failure:
            message = f"{how.fabric_failure}: check the fabric manager of the node"
            gpu.faults.note("fabric", Fault("Unhealthy", "OffFabric", message), now)
        if how.recovery_action:
            message = f"the driver advises to {how.recovery_action}"
            gpu.faults.note("advice", Fault("Unhealthy", "RecoveryAdvised", message), now)
        if how.inactive_links:
            numbers = ", ".join(map(str, how.inactive_links))
            message = f"NVLink {numbers} down: check the link's other end and the bridge, then reset it"
            gpu.faults.note("links", Fault("Degraded", "LinkDown", message), now)
        self._feel(gpu, how.thermal_slowdown, now)

    def _count_errors(self, gpu: _Gpu, count: int | None, now: float) -> None:
        before, gpu.uncorrected = gpu.uncorrected, count
        if before is None or count is None:
            return
        if count > before:
            gpu.faults.note("ecc", _uncorrected(), now)
        elif count < before:  # it counts from when the driver was loaded, or the GPU was reset
            gpu.was_reset()

    def _feel(self, gpu: _Gpu, hot: bool, now: float) -> None:
        if not hot:
            gpu.hot_since = None
            return
        gpu.hot_since = now if gpu.hot_since is None else gpu.hot_since
        if now - gpu.hot_since >= self._settings.overheated_after_seconds:
            message = "heat holds its clocks down: check fans, air and inlet temperature"
            gpu.faults.note("heat", Fault("Degraded", "ThermalSlowdown", message), now)

    def _gpu(self, uuid: str) -> _Gpu:
        if uuid not in self._gpus:
            self._gpus[uuid] = _Gpu(self._new_log())
        return self._gpus[uuid]

    def _new_log(self) -> FaultLog:
        return FaultLog(self._settings.recover_after_seconds)


def _uncorrected() -> Fault:
    message = "its memory had an error that could not be corrected: programs that used it have ended"
    return Fault("Unhealthy", "UncorrectedEcc", message)
