"""Looks at the GPUs before a decision on sharing, and does the steps that it asks for. Blocking."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mcp2026.api.gpu_sharing import Sharing
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


def look_at_gpus(driver: Driver, node_name: str, wanted: dict[str, Sharing]) -> Sight:
    """Return how the GPUs are set up; one that does not answer is left out.

    Raises:
        NvmlError: the driver as a whole does not answer.

    """
    reading = driver.read(node_name)
    facts = {}
    for gpu in reading.machine.gpus:
        try:
            facts[gpu.uuid] = _facts(driver, reading, gpu, wanted.get(gpu.uuid))
        except GpuCallError:
            continue
    return Sight(reading, facts)


def _facts(driver: Driver, reading: Reading, gpu: Gpu, wanted: Sharing | None) -> GpuFacts:
    profiles: tuple[MigProfile, ...] = ()
    if wanted is not None and wanted.mode == "MIG" and gpu.mig_capable:
        profiles = driver.mig_profiles(gpu.uuid)
    return GpuFacts(
        gpu.memory_mib,
        reading.compute_capabilities.get(gpu.uuid, (0, 0)),
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
