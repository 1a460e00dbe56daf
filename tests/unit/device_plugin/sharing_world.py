"""A node as data: one GPU, its driver, its MPS daemon, the kubelet and its pods, for tests of sharing."""

from dataclasses import dataclass, field, replace

from mcp2026.api.gpu_devices import DeviceKind, parse_device_id
from mcp2026.api.gpu_sharing import EXCLUSIVE, Sharing
from mcp2026.api.gpu_topology import Holder
from mcp2026.device_plugin.devices import CurrentSharing, Holding, Snapshot
from mcp2026.device_plugin.driver import ComputeMode
from mcp2026.device_plugin.offers import offers
from mcp2026.device_plugin.sharing.observation import (
    CreateInstance,
    DaemonState,
    DestroyInstance,
    GpuFacts,
    KubeletView,
    MpsDaemon,
    Observation,
    ReleaseMps,
    ReserveMps,
    SetComputeMode,
    SetMigMode,
    StartMps,
    Step,
    StopMps,
)
from mcp2026.device_plugin.sharing.transitions import Decision, SharingTransitions
from mcp2026.topology.machine import Gpu, Machine
from mcp2026.topology.mig.geometry import MigInstance, MigProfile

GPU = "GPU-00000000-0000-4000-8000-000000000000"
MEMORY_MIB = 81920
PROFILES = (
    MigProfile("1g.10gb", 19, 1, 1, (0, 1, 2, 3, 4, 5, 6), 7, 9856),
    MigProfile("2g.20gb", 14, 2, 2, (0, 2, 4), 3, 19968),
    MigProfile("3g.40gb", 9, 3, 4, (0, 4), 2, 40192),
    MigProfile("7g.80gb", 0, 7, 8, (0,), 1, 80384),
)

TIME_SLICE = Sharing("TimeSlice", replicas=4)
MPS = Sharing("MPS", replicas=4)
MIG = Sharing("MIG", mig_layout=("3g.40gb", "1g.10gb", "1g.10gb"))


class StepRefusedError(Exception):
    """The driver refuses a step."""


@dataclass
class World:
    """The GPU `GPU` with MIG. Pods are called ns/p0, ns/p1 and so on; a tick takes a second."""

    wanted: Sharing = EXCLUSIVE
    now: float = 0.0
    compute_mode: ComputeMode = ComputeMode.DEFAULT
    instances: tuple[MigInstance, ...] | None = None
    daemon: MpsDaemon | None = None
    foreign_pids: frozenset[int] = frozenset()
    refuses: str = ""
    """Name of a step that the driver refuses."""
    capability: tuple[int, int] = (8, 0)
    memory_mib: int = MEMORY_MIB
    profiles: tuple[MigProfile, ...] = PROFILES
    pods: dict[str, Holder] = field(default_factory=dict)
    """By device."""
    offered: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    """What the kubelet has noticed of `offered`."""
    kubelet_answers: bool = True
    tells_allocatable: bool = True
    transitions: SharingTransitions = field(default_factory=lambda: SharingTransitions())
    done: list[Step] = field(default_factory=list)
    current: CurrentSharing = field(default_factory=CurrentSharing)
    _made: int = 0

    @property
    def facts(self) -> GpuFacts:
        servers = frozenset() if self.daemon is None else self.daemon.pids
        return GpuFacts(
            self.memory_mib,
            self.capability,
            self.compute_mode,
            self.instances,
            profiles=self.profiles,
            pids=self.foreign_pids | servers,
        )

    def observe(self) -> Observation:
        view = None
        if self.kubelet_answers:
            view = KubeletView(self.now, dict(self.pods), self.listed if self.tells_allocatable else None)
        return Observation(
            {GPU: self.wanted},
            {GPU: self.facts},
            {} if self.daemon is None else {GPU: self.daemon},
            view,
            "" if self.kubelet_answers else "the socket is gone",
        )

    def decide(self) -> Decision:
        self.now += 1.0
        decision = self.transitions.decide(self.observe(), self.now)
        self.current = decision.sharing[GPU]
        self.offered = frozenset(device.id for group in offers(self.snapshot).values() for device in group)
        return decision

    @property
    def snapshot(self) -> Snapshot:
        machine = Machine(
            "n", (Gpu(0, GPU, "A100", self.memory_mib, "0000:01:00.0", 0, mig_capable=True),), ((None,),)
        )
        return Snapshot(
            machine,
            sharing={GPU: self.current},
            holdings={device: Holding("", holder) for device, holder in self.pods.items()},
            holdings_known=True,
            mig_instances={} if self.instances is None else {GPU: self.instances},
        )

    def tick(self, sync: bool = True) -> None:
        """Decide and do what was decided; `sync`: the kubelet notices its new list afterwards."""
        for step in self.decide().steps:
            try:
                self.do(step)
            except StepRefusedError as error:
                self.transitions.failed(step, str(error), self.now)
            else:
                self.transitions.succeeded(step)
        if sync:
            self.sync()

    def settle(self, ticks: int = 40) -> None:
        for _ in range(ticks):
            self.tick()

    def sync(self) -> None:
        self.listed = self.offered

    def restart(self) -> None:
        """The plugin ends and starts anew; the kubelet then holds nothing of it for usable."""
        self.transitions = SharingTransitions()
        self.offered = self.listed = frozenset()
        self.current = CurrentSharing(EXCLUSIVE, "Changing")

    def admit(self, device: str | None = None) -> str | None:
        """Give a free device that the kubelet has on its list to a new pod; None when there is none."""
        free = sorted(self.listed - self.pods.keys())
        if device is None and not free:
            return None
        chosen = device or free[0]
        self.pods[chosen] = Holder("ns", f"p{len(self.pods)}", "c")
        return chosen

    def do(self, step: Step) -> None:
        """Do `step` as driver and daemon would; whatever a pod uses must not be touched by it."""
        if type(step).__name__ == self.refuses:
            raise StepRefusedError("the driver refuses")
        self.done.append(step)
        held = {parse_device_id(device).uuid for device in self.pods}
        match step:
            case DestroyInstance(_, instance):
                assert instance.uuid not in held, "a slice in use was destroyed"
                assert self.instances is not None
                self.instances = tuple(other for other in self.instances if other != instance)
            case CreateInstance(_, profile, start):
                assert self.instances is not None
                self._made += 1
                made = MigInstance(f"MIG-{self._made}", profile.name, start, profile.size, self._made, 0)
                assert not any(made.slices & other.slices for other in self.instances), "slices overlap"
                self.instances = (*self.instances, made)
            case _:
                restart = isinstance(step, StartMps | StopMps) or (
                    isinstance(step, SetComputeMode)
                    and self.daemon is not None
                    and self.daemon.sharing == self.wanted
                )
                assert not held or restart, f"{step} while pods hold {held}"
                self._do_alone(step)

    def _do_alone(self, step: Step) -> None:
        match step:
            case SetMigMode(_, enabled):
                assert enabled or not self.instances, "the driver refuses while there are instances"
                self.instances = () if enabled else None
            case ReserveMps(_, sharing, before):
                self.daemon = MpsDaemon(sharing, before)
            case SetComputeMode(_, mode):
                self.compute_mode = mode
            case StartMps():
                assert self.daemon is not None
                assert self.compute_mode is ComputeMode.EXCLUSIVE_PROCESS
                self.daemon = replace(self.daemon, state=DaemonState.SERVING, pids=frozenset({7}))
            case StopMps():
                assert self.daemon is not None
                self.daemon = replace(self.daemon, state=DaemonState.DOWN, pids=frozenset(), reason="stopped")
            case ReleaseMps():
                assert self.daemon is not None
                assert self.compute_mode is self.daemon.compute_mode_before
                self.daemon = None

    def crash_daemon(self, reason: str = "exit status 1") -> None:
        assert self.daemon is not None
        self.daemon = replace(self.daemon, state=DaemonState.DOWN, pids=frozenset(), reason=reason)

    @property
    def kinds_held(self) -> set[DeviceKind]:
        return {parse_device_id(device).kind for device in self.pods}
