"""A placement question as plain data: written down as JSON it gives the same answer, anywhere and later.

GPUs are named by index, as people name them; the scorer's positions are an internal matter.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from mcp2026.topology.affinity import affinity_graph
from mcp2026.topology.bands import NOTHING_KNOWN, Choice, Circumstances, Score
from mcp2026.topology.demand import DemandMix
from mcp2026.topology.errors import DemandMixError, SnapshotFormatError
from mcp2026.topology.machine import Machine, description_from_document, machine_document
from mcp2026.topology.score import best_gpu_set

GpuIndex = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class PlacementSnapshot:
    """Which `size` GPUs of `machine` are best, out of those at the positions `free`?

    All of `must_include` (positions) are taken. `circumstances` is by position too.
    """

    machine: Machine
    free: tuple[int, ...]
    size: int
    must_include: tuple[int, ...] = ()
    circumstances: Circumstances = NOTHING_KNOWN

    def answer(self) -> Choice:
        """Return the best set.

        Raises:
            NoSuchSetError: fewer than `size` GPUs are free, or more must be included.

        """
        graph = affinity_graph(self.machine)
        return best_gpu_set(graph, self.free, self.size, self.must_include, self.circumstances)

    def indices(self, positions: tuple[int, ...]) -> list[int]:
        """Return the GPUs at `positions` as people name them."""
        return [self.machine.gpus[position].index for position in positions]


class _Document(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    machine: dict[str, Any]
    free: tuple[GpuIndex, ...]
    size: Annotated[int, msgspec.Meta(ge=0)]
    must_include: tuple[GpuIndex, ...] = ()
    tenants: dict[GpuIndex, Annotated[int, msgspec.Meta(ge=0)]] = {}
    headroom_us: dict[GpuIndex, int] = {}
    degraded: tuple[GpuIndex, ...] = ()
    demand_mix: dict[int, int] | None = None


def snapshot_document(snapshot: PlacementSnapshot) -> dict[str, Any]:
    """Return `snapshot` as JSON's types, from which the same question can be read."""
    known = snapshot.circumstances
    gpus = snapshot.machine.gpus
    return {
        "machine": machine_document(snapshot.machine),
        "free": snapshot.indices(snapshot.free),
        "size": snapshot.size,
        "mustInclude": snapshot.indices(snapshot.must_include),
        "tenants": {str(gpus[place].index): count for place, count in enumerate(known.tenants)},
        "headroomUs": {
            str(gpus[place].index): headroom
            for place, headroom in enumerate(known.headroom_us)
            if headroom is not None
        },
        "degraded": snapshot.indices(known.degraded),
        "demandMix": {str(size): share for size, share in known.mix.shares},
    }


def score_document(score: Score) -> list[dict[str, Any]]:
    """Return the terms as JSON's types, from the highest band."""
    return [{"name": term.name, "value": term.value, "unit": term.unit} for term in score.terms]


def snapshot_from_document(source: str, document: Any) -> PlacementSnapshot:
    """Return the question that `document` holds; `source` is named in errors.

    Raises:
        MachineFormatError: the machine in it cannot be read.
        SnapshotFormatError: another field is missing or wrong; the message names it.

    """
    try:
        read = msgspec.convert(document, _Document, strict=False)
        mix = DemandMix.of(read.demand_mix) if read.demand_mix is not None else NOTHING_KNOWN.mix
    except msgspec.ValidationError as error:
        raise SnapshotFormatError(source, str(error)) from error
    except DemandMixError as error:
        raise SnapshotFormatError(source, f"demandMix: {error}") from error
    machine = description_from_document(f"{source}: machine", read.machine).machine
    positions = {gpu.index: place for place, gpu in enumerate(machine.gpus)}

    def places(field: str, indices: tuple[int, ...]) -> tuple[int, ...]:
        for index in indices:
            if index not in positions:
                allowed = ", ".join(map(str, positions))
                raise SnapshotFormatError(source, f"{field}: no GPU {index}; allowed: {allowed}")
        return tuple(positions[index] for index in indices)

    places("tenants", tuple(read.tenants))
    places("headroomUs", tuple(read.headroom_us))
    return PlacementSnapshot(
        machine,
        places("free", read.free),
        read.size,
        places("mustInclude", read.must_include),
        Circumstances(
            tenants=tuple(read.tenants.get(gpu.index, 0) for gpu in machine.gpus) if read.tenants else (),
            headroom_us=tuple(read.headroom_us.get(gpu.index) for gpu in machine.gpus)
            if read.headroom_us
            else (),
            degraded=places("degraded", read.degraded),
            mix=mix,
        ),
    )
