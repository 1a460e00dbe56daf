"""GPUs that are cut into MIG devices at random, as data."""

from hypothesis import strategies as st

from mcp2026.topology.mig.capacity import Occupancy, starts_left
from mcp2026.topology.mig.choice import CutGpu
from mcp2026.topology.mig.geometry import MigInstance
from mcp2026.topology.mig.tables import MigGeometry


@st.composite
def cut_gpus(draw: st.DrawFn, geometry: MigGeometry, most: int = 4) -> dict[int, CutGpu]:
    """One to `most` sound GPUs by position, each with one instance at least; UUIDs name GPU and start."""
    gpus = {}
    for place in range(draw(st.integers(1, most))):
        instances: list[MigInstance] = []
        taken = Occupancy()
        for profile in draw(st.lists(st.sampled_from(geometry.profiles), min_size=1, max_size=7)):
            if starts := starts_left(geometry.profiles, profile, taken):
                start = draw(st.sampled_from(starts))
                taken = taken.with_instance(profile, start)
                uuid = f"MIG-{place}-{start}"
                instances.append(MigInstance(uuid, profile.name, start, profile.size, len(instances), 0))
        gpus[place] = CutGpu(tuple(instances), geometry)
    return gpus
