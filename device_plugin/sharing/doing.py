"""Looks at the GPUs before a decision on sharing, and does the steps that it asks for. Blocking."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from mcp2026.api.gpu_sharing import Sharing, SharingMode
from mcp2026.device_plugin.adapters.mps_daemons import MpsDaemons
from mcp2026.device_plugin.driver import Driver, Reading
from mcp2026.device_plugin.errors import GpuCallError, NvmlError
from mcp2026.device_plugin.sharing.errors import MpsError
from mcp2026.device_plugin.sharing.observation import (
    CreateInstance,
    DestroyInstance,
    GpuFacts,
    ReleaseMps,
    ReserveMps,
    SetComputeMode,
    SetMigMode,
    StartMps,
    Step,
    StopMps,
)
from mcp2026.topology.machine import Gpu
from mcp2026.topology.mig.geometry import MigProfile


@dataclass(frozen=True, slots=True)
class Sight:
    """What the driver said: of each GPU that answers, by UUID, and the reading that it is from."""

    reading: Reading
    facts: dict[str, GpuFacts]


def look_at_gpus(
    driver: Driver, node_name: str, wanted: Mapping[str, Sharing], reserved: Collection[str]
) -> Sight:
    """Return how the GPUs are set up; one that does not answer is left out.

    Compute mode and processes are asked for only where they matter: on GPUs that are, or shall be, in mode
    MIG or MPS (`reserved` are the UUIDs of those with a daemon). Not all boards and hypervisors tell them.

    Raises:
        NvmlError: the driver as a whole does not answer.

    """
    reading = driver.read(node_name)
    facts = {}
    for gpu in reading.machine.gpus:
        try:
            mode = wanted[gpu.uuid].mode if gpu.uuid in wanted else "Exclusive"
            if mode in ("MIG", "MPS") or gpu.uuid in reserved or gpu.uuid in reading.mig_instances:
                facts[gpu.uuid] = _facts(driver, reading, gpu, mode)
            else:
                facts[gpu.uuid] = GpuFacts(gpu.memory_mib, _capability(reading, gpu))
        except GpuCallError:
            continue
    return Sight(reading, facts)


def _capability(reading: Reading, gpu: Gpu) -> tuple[int, int]:
    return reading.compute_capabilities.get(gpu.uuid, (0, 0))


def _facts(driver: Driver, reading: Reading, gpu: Gpu, mode: SharingMode) -> GpuFacts:
    profiles: tuple[MigProfile, ...] = ()
    if mode == "MIG" and gpu.mig_capable:
        profiles = driver.mig_profiles(gpu.uuid)
    return GpuFacts(
        gpu.memory_mib,
        _capability(reading, gpu),
        driver.compute_mode(gpu.uuid),
        reading.mig_instances.get(gpu.uuid),
        reading.bare_mig_instances.get(gpu.uuid, ()),
        profiles,
        frozenset(process.pid for process in driver.processes(gpu.uuid)),
    )


def do_steps(
    steps: Iterable[Step], ask: Callable[[Callable[[Driver], None]], None], daemons: MpsDaemons
) -> list[tuple[Step, str]]:
    """Do all `steps`, which are of different GPUs; return each with why it failed, empty if it did not."""
    results = []
    for step in steps:
        try:
            _do(step, ask, daemons)
        except (NvmlError, MpsError) as error:
            results.append((step, str(error)))
        else:
            results.append((step, ""))
    return results


def _do(step: Step, ask: Callable[[Callable[[Driver], None]], None], daemons: MpsDaemons) -> None:
    match step:
        case SetMigMode(uuid, enabled):
            ask(lambda driver: driver.set_mig_mode(uuid, enabled))
        case DestroyInstance(uuid, instance):
            ask(lambda driver: driver.destroy_mig_instance(uuid, instance))
        case CreateInstance(uuid, profile, start):
            ask(lambda driver: _create(driver, uuid, profile, start))
        case SetComputeMode(uuid, mode):
            ask(lambda driver: driver.set_compute_mode(uuid, mode))
        case ReserveMps(uuid, sharing, before):
            daemons.reserve(uuid, sharing, before)
        case StartMps(uuid, ceiling):
            daemons.start(uuid, ceiling)
        case StopMps(uuid):
            daemons.stop(uuid)
        case ReleaseMps(uuid):
            daemons.release(uuid)


def _create(driver: Driver, uuid: str, profile: MigProfile, start: int) -> None:
    driver.create_mig_instance(uuid, profile, start)
