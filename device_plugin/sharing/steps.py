"""What is the next thing to do on a GPU so that it is shared as wanted? Pure, from what is there now.

Nothing is remembered between two steps, so that a plugin that starts anew goes on where another one ended.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import combinations

from mcp2026.api.gpu_sharing import Sharing
from mcp2026.device_plugin.driver import ComputeMode
from mcp2026.device_plugin.sharing.mps_limits import MIB_PER_GIB, MpsLimits, most_clients
from mcp2026.device_plugin.sharing.observation import (
    CreateInstance,
    DaemonState,
    DestroyInstance,
    GpuFacts,
    MpsDaemon,
    ReleaseMps,
    ReserveMps,
    SetComputeMode,
    SetMigMode,
    StartMps,
    Step,
    StopMps,
)
from mcp2026.topology.errors import InstancesInTheWayError, LayoutDoesNotFitError, UnknownMigProfileError
from mcp2026.topology.mig.geometry import MigInstance, MigProfile
from mcp2026.topology.mig.planner import Creation, LayoutPlan, plan_layout


class ImpossibleSharingError(Exception):
    """The GPU cannot be shared so; `str()` says why and what would do."""


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """How a GPU in MIG mode gets another layout: what goes, and what comes, at which memory slice."""

    destroy: tuple[MigInstance, ...] = ()
    create: tuple[Creation, ...] = ()


def layout_change(target: Sharing, facts: GpuFacts, held: Set[str]) -> LayoutChange | None:
    """Return how the instances must change for `target`; None where MIG is neither on nor wanted.

    Instances whose UUIDs are in `held` are to be destroyed only where no layout spares them.

    Raises:
        ImpossibleSharingError: the GPU cannot be shared so.

    """
    if target.mode == "MIG" and not facts.profiles:
        raise ImpossibleSharingError("this GPU has no MIG: choose another mode")
    clients = most_clients(facts.compute_capability)
    if target.mode == "MPS" and target.shares > clients:
        raise ImpossibleSharingError(
            f"{target.shares} replicas with mode MPS: at most {clients} on a GPU of compute capability "
            f"{'.'.join(map(str, facts.compute_capability))}"
        )
    if target.unit == "Memory" and facts.memory_mib < MIB_PER_GIB:
        raise ImpossibleSharingError(
            f"it cannot be sold by memory: the driver tells of {facts.memory_mib} MiB; choose unit Replica"
        )
    if target.mode == "MIG":
        known = {profile.name for profile in facts.profiles}
        present = [instance for instance in facts.instances or () if instance.profile in known]
        strange = [instance for instance in facts.instances or () if instance.profile not in known]
        plan = _plan(facts.profiles, present, held, target.mig_layout)
        return LayoutChange((*facts.bare, *strange, *plan.destroy), plan.create)
    if facts.instances is not None:
        return LayoutChange(destroy=(*facts.bare, *facts.instances))
    return None


def _plan(
    profiles: Sequence[MigProfile], present: Sequence[MigInstance], held: Set[str], wanted: Sequence[str]
) -> LayoutPlan:
    """Return the plan that moves the fewest of the instances in use: none, unless it must."""
    in_use = sorted({instance.uuid for instance in present} & held)
    for moved in range(len(in_use) + 1):
        for staying in combinations(in_use, len(in_use) - moved):
            try:
                return plan_layout(profiles, present, staying, wanted)
            except InstancesInTheWayError:
                continue
            except (LayoutDoesNotFitError, UnknownMigProfileError) as error:
                raise ImpossibleSharingError(str(error)) from error
    raise ImpossibleSharingError(f"{', '.join(wanted)} cannot be planned on this GPU")


def next_step(
    uuid: str, target: Sharing, facts: GpuFacts, daemon: MpsDaemon | None, layout: LayoutChange | None
) -> Step | None:
    """Return what to do next on the GPU `uuid` so that it is as `target` says; None: nothing is left to do.

    `layout` is what `layout_change` said. A daemon that is still silent is no step: it is waited for.
    """
    if daemon is not None and daemon.sharing != target:
        return _away_from_mps(uuid, facts, daemon)
    if target.mode == "MIG":
        return _towards_mig(uuid, facts, layout)
    if layout is not None:
        if layout.destroy:
            return DestroyInstance(uuid, layout.destroy[0])
        return SetMigMode(uuid, enabled=False)
    return _towards_mps(uuid, target, facts, daemon) if target.mode == "MPS" else None


def _away_from_mps(uuid: str, facts: GpuFacts, daemon: MpsDaemon) -> Step:
    if daemon.state is not DaemonState.DOWN:
        return StopMps(uuid)
    if facts.compute_mode is not daemon.compute_mode_before:
        return SetComputeMode(uuid, daemon.compute_mode_before)
    return ReleaseMps(uuid)


def _towards_mig(uuid: str, facts: GpuFacts, layout: LayoutChange | None) -> Step | None:
    if facts.instances is None:
        return SetMigMode(uuid, enabled=True)
    if layout is not None and layout.destroy:
        return DestroyInstance(uuid, layout.destroy[0])
    if layout is not None and layout.create:
        return CreateInstance(uuid, layout.create[0].profile, layout.create[0].start)
    return None


def _towards_mps(uuid: str, target: Sharing, facts: GpuFacts, daemon: MpsDaemon | None) -> Step | None:
    if daemon is None:
        return ReserveMps(uuid, target, facts.compute_mode)
    if facts.compute_mode is not ComputeMode.EXCLUSIVE_PROCESS:
        return SetComputeMode(uuid, ComputeMode.EXCLUSIVE_PROCESS)
    if daemon.state is DaemonState.DOWN:
        return StartMps(uuid, MpsLimits(thread_percentage=100, memory_mib=facts.memory_mib))
    return None
