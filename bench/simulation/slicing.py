"""Which GPU, or slice of one, does each model get: whole GPUs shared in turn, and MIG in three ways.

Layouts are planned by the product's planner (`plan_layout`, `capacity`) with the product's table of profiles.
Which profile suits a model is not chosen by the product today: whoever writes the InferenceModel names it.
`planned` is how that choice could be made.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.simulation.serving_queue import GPU_COMPUTE_SLICES, ServedModel
from mcp2026.topology.errors import InstancesInTheWayError, LayoutDoesNotFitError
from mcp2026.topology.mig.capacity import MEDIA_EXTENSIONS, Occupancy, capacity, starts_left
from mcp2026.topology.mig.geometry import MigInstance, MigProfile
from mcp2026.topology.mig.planner import plan_layout
from mcp2026.topology.mig.tables import H100_80

GPU_MEMORY_MIB = max(profile.memory_mib for profile in H100_80.profiles)
PROFILES = tuple(profile for profile in H100_80.profiles if MEDIA_EXTENSIONS not in profile.name)
STATIC_SHARES = 3
"""Equal parts of a GPU's memory that are reserved for models, in the static case."""
BALANCED = ("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb")
"""The layout that mig-parted calls all-balanced."""
SEVEN = ("1g.10gb",) * 6 + ("1g.20gb",)
"""The most slices that a GPU takes, one of them with twice the memory."""

_SMALLEST_FIRST = tuple(
    sorted(PROFILES, key=lambda profile: (profile.memory_mib, profile.compute_slices, profile.size))
)


@dataclass(frozen=True, slots=True)
class Server:
    """What runs one batch at a time: a slice or a share with one model, or a whole GPU with several in turn.

    `profile` tells which slice or share it is. A share may have less than a compute slice.
    """

    gpu: int
    compute_slices: float
    models: tuple[ServedModel, ...]
    profile: str = ""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Where the models are that have room; the others have none and answer nothing."""

    gpus: int
    servers: tuple[Server, ...]

    @property
    def hosted(self) -> tuple[ServedModel, ...]:
        """The models that have room."""
        return tuple(model for server in self.servers for model in server.models)

    @property
    def memory_use(self) -> float:
        """What the models use of the memory of all GPUs, of 1."""
        return sum(model.memory_mib for model in self.hosted) / (self.gpus * GPU_MEMORY_MIB)


def whole_gpus(models: Sequence[ServedModel], gpus: int) -> Arrangement:
    """Give each model a GPU of its own, as long as there are any."""
    served = enumerate(models[:gpus])
    return Arrangement(gpus, tuple(Server(gpu, GPU_COMPUTE_SLICES, (model,)) for gpu, model in served))


def static_shares(models: Sequence[ServedModel], gpus: int) -> Arrangement:
    """Reserve thirds of a GPU's memory for each model, first fit; a GPU serves its models in turn."""
    left = [STATIC_SHARES] * gpus
    on: list[list[ServedModel]] = [[] for _ in range(gpus)]
    for model in models:
        shares = -(-model.memory_mib * STATIC_SHARES // GPU_MEMORY_MIB)
        gpu = next((gpu for gpu in range(gpus) if left[gpu] >= shares), None)
        if gpu is not None:
            left[gpu] -= shares
            on[gpu].append(model)
    served = enumerate(map(tuple, on))
    return Arrangement(gpus, tuple(Server(gpu, GPU_COMPUTE_SLICES, its) for gpu, its in served if its))


def fixed_layout(models: Sequence[ServedModel], gpus: int, layout: Sequence[str] = BALANCED) -> Arrangement:
    """Cut each GPU into `layout`; a model takes the smallest free slice that holds it, first fit."""
    by_name = {profile.name: profile for profile in PROFILES}
    plan = plan_layout(PROFILES, (), (), layout)
    free = [(gpu, by_name[made.profile.name]) for gpu in range(gpus) for made in plan.create]
    servers = []
    for model in models:
        holding = [place for place in free if place[1].memory_mib >= model.memory_mib]
        if holding:
            gpu, profile = place = min(holding, key=lambda each: (_SMALLEST_FIRST.index(each[1]), each[0]))
            free.remove(place)
            servers.append(Server(gpu, profile.compute_slices, (model,), profile.name))
    return Arrangement(gpus, tuple(servers))


def by_memory(models: Sequence[ServedModel], gpus: int) -> Arrangement:
    """Make for each model the smallest slice that holds it, on the first GPU, at the lowest place."""
    taken = [Occupancy() for _ in range(gpus)]
    servers = []
    for model in models:
        profile = _holding(model)[0]
        for gpu, occupancy in enumerate(taken):
            if starts := starts_left(PROFILES, profile, occupancy):
                taken[gpu] = occupancy.with_instance(profile, min(starts))
                servers.append(Server(gpu, profile.compute_slices, (model,), profile.name))
                break
    return Arrangement(gpus, tuple(servers))


Predict = Callable[[ServedModel, float], float]
"""The 99th percentile of a model's latency, in ms, on a slice of so many compute slices."""


def planned(models: Sequence[ServedModel], gpus: int, predict: Predict) -> Arrangement:
    """Give every model room first; then larger slices to those that would break their promise.

    All models are known at once. The one that would be latest by most goes first; it gets the smallest slice
    on which it keeps its promise, else the fastest, with which all others still have room.
    """
    profiles = [_holding(model)[0] for model in models]
    best = _pack(profiles, gpus)

    def excess(place: int) -> float:
        return predict(models[place], profiles[place].compute_slices) - models[place].slo_ms

    for place in sorted(range(len(models)), key=lambda each: -excess(each)):
        if excess(place) <= 0:
            break
        for profile in _by_promise(models[place], predict):
            packed = _pack([*profiles[:place], profile, *profiles[place + 1 :]], gpus)
            if len(packed) == len(best) and place in packed:
                profiles[place], best = profile, packed
                break
    return Arrangement(
        gpus,
        tuple(
            Server(gpu, profiles[place].compute_slices, (models[place],), profiles[place].name)
            for place, gpu in sorted(best.items())
        ),
    )


def _by_promise(model: ServedModel, predict: Predict) -> list[MigProfile]:
    """Return the slices that hold the model: that keep the promise, the smallest first; then the fastest."""
    holding = _holding(model)
    latency_ms = {profile.name: predict(model, profile.compute_slices) for profile in holding}
    keeping = [profile for profile in holding if latency_ms[profile.name] <= model.slo_ms]
    breaking = [profile for profile in holding if profile not in keeping]
    return [*keeping, *sorted(breaking, key=lambda profile: latency_ms[profile.name])]


@dataclass(frozen=True, slots=True)
class _CutGpu:
    """A GPU with the slices that it has; all are in use."""

    instances: tuple[MigInstance, ...] = ()
    occupancy: Occupancy = field(default_factory=Occupancy)

    def capacity(self, later: Mapping[str, int]) -> int:
        """What those that are still to come can have; if nobody is, what any could."""
        return capacity(PROFILES, self.occupancy, later or None)

    def with_one_more(self, profile: MigProfile, later: Mapping[str, int]) -> "_CutGpu | None":
        """Ask the planner where one more goes around those in use; None where it finds no place."""
        in_use = [instance.uuid for instance in self.instances]
        wanted = [instance.profile for instance in self.instances] + [profile.name]
        try:
            plan = plan_layout(PROFILES, self.instances, in_use, wanted, later or None)
        except (LayoutDoesNotFitError, InstancesInTheWayError):
            return None
        (made,) = plan.create
        number = len(self.instances)
        new = MigInstance(f"slice-{number}", profile.name, made.start, profile.size, number, 0)
        return _CutGpu((*self.instances, new), self.occupancy.with_instance(profile, made.start))


def _pack(profiles: Sequence[MigProfile], gpus: int) -> dict[int, int]:
    """Return the GPU of each slice that finds room, by position.

    The largest first, where it costs those that are still to come least.
    """
    cut = [_CutGpu() for _ in range(gpus)]
    found = {}
    later = Counter(profile.name for profile in profiles)
    for place in sorted(range(len(profiles)), key=lambda each: -_SMALLEST_FIRST.index(profiles[each])):
        later[profiles[place].name] -= 1
        coming = +later
        rooms = [
            (its.capacity(coming) - after.capacity(coming), gpu, after)
            for gpu, its in enumerate(cut)
            if (after := its.with_one_more(profiles[place], coming)) is not None
        ]
        if rooms:
            _, gpu, cut[gpu] = min(rooms, key=lambda room: room[:2])
            found[place] = gpu
    return found


def _holding(model: ServedModel) -> list[MigProfile]:
    return [profile for profile in _SMALLEST_FIRST if profile.memory_mib >= model.memory_mib]
