"""When may a GPU change how it is shared, and what is waited for? A state machine per GPU, without I/O.

A change takes its devices off the kubelet's list, waits until the kubelet has noticed and nobody holds one,
and only then touches the GPU. What is wanted can change at any moment, also back. Beside what can be seen it
knows only what was offered since the process started: a new process offers nothing before it has looked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mcp2026.api.gpu_devices import DeviceKind, parse_device_id
from mcp2026.api.gpu_sharing import EXCLUSIVE, MOST_REPLICAS, Sharing, SharingState
from mcp2026.api.gpu_topology import Holder
from mcp2026.device_plugin.devices import CurrentSharing
from mcp2026.device_plugin.sharing.observation import (
    DaemonState,
    GpuFacts,
    KubeletView,
    MpsDaemon,
    Observation,
    StartMps,
    Step,
    StopMps,
)
from mcp2026.device_plugin.sharing.steps import (
    ImpossibleSharingError,
    layout_change,
    next_step,
)
from mcp2026.device_plugin.sharing.waiting import waits_for

SILENT_DAEMON_S = 30.0
"""A daemon that does not answer for this long is stopped by force and started again."""
STABLE_DAEMON_S = 60.0
"""A daemon that has served for this long has its earlier ends forgiven."""
TOLERATED_DAEMON_ENDS = 3
"""A daemon that ended so often in a row has failed; it is still started again, after pauses."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
MOST_DOUBLINGS = 16
"""By then the pause is the longest; a GPU that fails for days would make it no number."""


@dataclass(frozen=True, slots=True)
class Decision:
    """How all GPUs are shared now, by UUID, and at most one step for each GPU that can be taken at once."""

    sharing: Mapping[str, CurrentSharing]
    steps: tuple[Step, ...] = ()

    @property
    def settled(self) -> bool:
        """Whether every GPU is as wanted, so that nothing is waited for."""
        return all(current.state == "Active" for current in self.sharing.values())


@dataclass(slots=True)
class _Memory:
    """What is known of a GPU beside what can be seen."""

    wanted: Sharing | None = None
    said: CurrentSharing | None = None
    offered: Sharing | None = None
    """What the kubelet may believe to be on its list; None at first, and once it was seen to have noticed."""
    withdrawn_at: float | None = None
    failures: int = 0
    failure: str = ""
    tolerable: bool = False
    """The failure is the end of a daemon, which a new start usually mends."""
    next_try_at: float = 0.0
    daemon_started: bool = False
    served_since: float | None = None
    silent_since: float | None = None

    def fail(self, reason: str, now: float, tolerable: bool = False) -> None:
        self.failures += 1
        self.failure, self.tolerable = reason, tolerable
        doublings = min(self.failures - 1, MOST_DOUBLINGS)
        self.next_try_at = now + min(FIRST_PAUSE_S * 2.0**doublings, LONGEST_PAUSE_S)

    def forgive(self) -> None:
        self.failures, self.failure, self.next_try_at = 0, "", 0.0


@dataclass(slots=True)
class SharingTransitions:
    """Decides for all GPUs of a node."""

    _memories: dict[str, _Memory] = field(default_factory=dict)

    def decide(self, seen: Observation, now: float) -> Decision:
        """Return how each wanted GPU is shared now, and what can be done at once; `now` in s."""
        sharing: dict[str, CurrentSharing] = {}
        steps: list[Step] = []
        for uuid, wanted in seen.wanted.items():
            memory = self._memories.setdefault(uuid, _Memory())
            if uuid in seen.unreadable:
                sharing[uuid] = _left_alone(wanted, memory.said, seen.unreadable[uuid])
                continue
            sharing[uuid], step = self._decide(uuid, wanted, seen, memory, now)
            memory.said = sharing[uuid]
            if step is not None:
                steps.append(step)
        return Decision(sharing, tuple(steps))

    def succeeded(self, step: Step) -> None:
        """Take note that `step` was done."""
        memory = self._memories[step.uuid]
        if isinstance(step, StartMps):
            memory.daemon_started = True
        elif not isinstance(step, StopMps) and memory.wanted is not None and memory.wanted.mode != "MPS":
            memory.forgive()

    def failed(self, step: Step, reason: str, now: float) -> None:
        """Take note that `step` could not be done; it is tried again after a pause."""
        self._memories[step.uuid].fail(reason, now)

    def _decide(
        self, uuid: str, wanted: Sharing, seen: Observation, memory: _Memory, now: float
    ) -> tuple[CurrentSharing, Step | None]:
        if memory.wanted != wanted:
            memory.wanted = wanted
            memory.forgive()
        facts = seen.facts.get(uuid)
        if facts is None:
            unknown = CurrentSharing(wanted, "Changing", "the driver does not tell how this GPU is set up")
            return memory.said or unknown, None
        daemon = seen.daemons.get(uuid)
        held = _held_on(uuid, facts, seen.kubelet)
        try:
            layout = layout_change(wanted, facts, held.keys())
        except ImpossibleSharingError as error:
            return CurrentSharing(wanted, "Failed", str(error)), None
        _watch_daemon(memory, daemon, now)
        step = next_step(uuid, wanted, facts, daemon, layout)
        established = _established(wanted, facts, daemon, held)
        left = [how for how in (memory.offered, established) if how is not None and not _same(how, wanted)]
        if not left and daemon is not None:
            memory.withdrawn_at = None
            return _with_daemon(uuid, wanted, daemon, step, memory, now)
        if not left and step is None and _may_be_offered(wanted, seen, memory):
            memory.withdrawn_at = None
            memory.offered = wanted
            return CurrentSharing(wanted), None
        if memory.withdrawn_at is None:
            memory.withdrawn_at = now
        waiting = waits_for(uuid, facts, daemon, seen, step, layout, held, memory.withdrawn_at, now)
        if waiting:
            return CurrentSharing(left[0] if left else wanted, "Draining", waiting), None
        memory.offered = None
        if step is None:
            memory.withdrawn_at = None
            memory.offered = wanted
            return CurrentSharing(wanted), None
        if memory.failures:
            failed = CurrentSharing(wanted, "Failed", memory.failure)
            return failed, None if now < memory.next_try_at else step
        if held:  # slices that stay while others around them change: they stay on the list
            return CurrentSharing(wanted, "Draining", _doing(step)), step
        return CurrentSharing(wanted, "Changing", _doing(step)), step


def _left_alone(wanted: Sharing, said: CurrentSharing | None, reason: str) -> CurrentSharing:
    """Return how a GPU is shared whose record of a daemon cannot be read: as before, or not at all."""
    return CurrentSharing(wanted, "Failed", reason) if said is None else replace(said, message=reason)


def _same(one: Sharing, other: Sharing) -> bool:
    """Tell whether two ways to share come to the same devices and daemons."""
    return (one.mode, one.unit, one.shares, sorted(one.mig_layout)) == (
        other.mode,
        other.unit,
        other.shares,
        sorted(other.mig_layout),
    )


def _held_on(uuid: str, facts: GpuFacts, kubelet: KubeletView | None) -> dict[str, Holder | None]:
    if kubelet is None:
        return {}
    names = {uuid, *(instance.uuid for instance in facts.instances or ())}
    return {
        device: holder for device, holder in kubelet.held.items() if parse_device_id(device).uuid in names
    }


def _established(
    wanted: Sharing, facts: GpuFacts, daemon: MpsDaemon | None, held: Mapping[str, Holder | None]
) -> Sharing | None:
    """Return how the GPU is set up or held; None when neither driver nor pods bind it to any mode."""
    if facts.instances is not None:
        return Sharing("MIG", mig_layout=tuple(instance.profile for instance in facts.instances))
    if daemon is not None:
        return daemon.sharing
    devices = [parse_device_id(device) for device in held]
    kinds = {device.kind for device in devices}
    if DeviceKind.GPU in kinds:
        return EXCLUSIVE
    if DeviceKind.MEMORY in kinds:
        return Sharing("TimeSlice", unit="Memory")
    if DeviceKind.SHARE in kinds:
        needed = max(device.number for device in devices) + 1
        if wanted.mode == "TimeSlice" and wanted.unit == "Replica" and needed <= wanted.shares:
            return wanted
        return Sharing("TimeSlice", replicas=min(needed, MOST_REPLICAS))
    return None


def _may_be_offered(wanted: Sharing, seen: Observation, memory: _Memory) -> bool:
    """Tell whether a GPU on which nothing must change can be offered without asking the kubelet first.

    After a start, whole GPUs are: a node whose kubelet does not tell who holds what keeps working.
    """
    return memory.offered is not None or seen.kubelet is not None or wanted.mode == "Exclusive"


def _watch_daemon(memory: _Memory, daemon: MpsDaemon | None, now: float) -> None:
    state = None if daemon is None else daemon.state
    if state is not DaemonState.SERVING:
        memory.served_since = None
    elif memory.served_since is None:
        memory.served_since = now
    elif now - memory.served_since >= STABLE_DAEMON_S:
        memory.forgive()
    if state is not DaemonState.SILENT:
        memory.silent_since = None
    elif memory.silent_since is None:
        memory.silent_since = now
    if daemon is not None and state is DaemonState.DOWN and memory.daemon_started:
        memory.daemon_started = False
        memory.fail(f"the MPS daemon ended: {daemon.reason}", now, tolerable=True)


def _with_daemon(
    uuid: str, wanted: Sharing, daemon: MpsDaemon, step: Step | None, memory: _Memory, now: float
) -> tuple[CurrentSharing, Step | None]:
    """Keep up the daemon of a GPU that is wanted as it is reserved; nobody has to be drained for that."""
    if step is None and daemon.state is DaemonState.SERVING:
        memory.offered = wanted
        return CurrentSharing(wanted), None
    if step is None and memory.silent_since is not None and now - memory.silent_since >= SILENT_DAEMON_S:
        memory.daemon_started = True
        return CurrentSharing(wanted, "Changing", "the MPS daemon hangs and is stopped"), StopMps(uuid)
    if memory.failures:
        state: SharingState = "Failed"
        if memory.tolerable and memory.failures < TOLERATED_DAEMON_ENDS:
            state = "Changing"
        return CurrentSharing(wanted, state, memory.failure), None if now < memory.next_try_at else step
    doing = "waits for the MPS daemon to answer" if step is None else _doing(step)
    return CurrentSharing(wanted, "Changing", doing), step


def _doing(step: Step) -> str:
    match step:
        case StartMps():
            return "starts the MPS daemon"
        case StopMps():
            return "stops the MPS daemon"
        case _:
            return {
                "SetMigMode": "switches MIG mode",
                "DestroyInstance": "removes MIG instances",
                "CreateInstance": "makes MIG instances",
                "ReserveMps": "prepares MPS",
                "SetComputeMode": "sets the compute mode",
                "ReleaseMps": "tidies up after MPS",
            }[type(step).__name__]
