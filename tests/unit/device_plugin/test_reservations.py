"""Did pods get what was reserved for them? Compared purely."""

import pytest

from mcp2026.api.gpu_topology import Holder
from mcp2026.device_plugin.reservations import HeldDevices, Reservation, divergences

GPU, SHARED, MEMORY = "mcp2026.io/gpu", "mcp2026.io/gpu-shared", "mcp2026.io/gpu-memory"


def held(resource: str, *devices: str, container: str = "main") -> HeldDevices:
    return {(Holder("team", "p", container), resource): frozenset(devices)}


@pytest.mark.parametrize(
    ("resource", "reserved", "holds", "diverges"),
    [
        pytest.param(GPU, ("A", "B"), held(GPU, "B", "A"), False, id="the same, in another order"),
        pytest.param(GPU, ("A", "B"), held(GPU, "A", "C"), True, id="another GPU"),
        pytest.param(GPU, ("A", "B"), held(GPU, "A"), True, id="fewer"),
        pytest.param(GPU, ("A",), {}, False, id="nothing yet"),
        pytest.param(GPU, ("A",), held(GPU, "B", container="side"), False, id="another container"),
        pytest.param(SHARED, ("A::0",), held(SHARED, "A::3"), False, id="another share of the same GPU"),
        pytest.param(SHARED, ("A::0",), held(SHARED, "B::0"), True, id="a share of another GPU"),
        pytest.param(MEMORY, ("A::m0", "A::m1"), held(MEMORY, "A::m7", "A::m3"), False, id="other GiB"),
        pytest.param(MEMORY, ("A::m0", "A::m1"), held(MEMORY, "A::m0", "B::m1"), True, id="GiB of two GPUs"),
    ],
)
def test_what_diverges(resource: str, reserved: tuple[str, ...], holds: HeldDevices, diverges: bool) -> None:
    reservation = Reservation("team", "p", "uid", "2026", {"main": {resource: reserved}})
    found = divergences([reservation], holds)
    assert bool(found) == diverges
    if diverges:
        assert (found[0].container, found[0].resource) == ("main", resource)
        assert "team/p" in str(found[0])


def test_gib_are_told_by_number() -> None:
    reservation = Reservation("team", "p", "uid", "2026", {"main": {MEMORY: ("A::m0", "A::m1")}})
    (found,) = divergences([reservation], held(MEMORY, "B::m0", "B::m1"))
    assert "holds 2 x B of mcp2026.io/gpu-memory, reserved were 2 x A" in str(found)
