"""Did pods get what was reserved for them? Compared purely."""

import pytest

from mcp2026.api.gpu_topology import Holder
from mcp2026.device_plugin.reservations import (
    HeldDevices,
    Reservation,
    divergences,
    matching_reservation,
    open_reservations,
)

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


@pytest.mark.parametrize(
    ("resource", "reserved", "available", "must_include", "chosen"),
    [
        pytest.param(GPU, ("A", "B"), "ABC", (), ("A", "B"), id="the very GPUs"),
        pytest.param(GPU, ("A", "B"), "BCD", (), None, id="one is gone"),
        pytest.param(GPU, ("A", "B"), "ABC", ("C",), None, id="one that must be is not reserved"),
        pytest.param(GPU, ("A", "B"), "ABC", ("B",), ("B", "A"), id="one that was"),
        pytest.param(SHARED, ("A::0",), ("A::1", "A::0"), (), ("A::0",), id="the very share"),
        pytest.param(SHARED, ("A::0",), ("B::0", "A::3"), (), ("A::3",), id="another share of the GPU"),
        pytest.param(SHARED, ("A::0", "A::1"), ("A::3", "B::0"), (), None, id="too few shares of the GPU"),
        pytest.param(
            MEMORY, ("A::m0", "A::m1"), ("B::m0", "A::m7", "A::m9"), (), ("A::m7", "A::m9"), id="other GiB"
        ),
    ],
)
def test_what_is_reserved_is_given_or_what_is_alike(
    resource: str,
    reserved: tuple[str, ...],
    available: tuple[str, ...],
    must_include: tuple[str, ...],
    chosen: tuple[str, ...] | None,
) -> None:
    reservation = Reservation("team", "p", "uid", "2026", {"main": {resource: reserved}})
    waiting = open_reservations([reservation], {}, resource)
    match = matching_reservation(waiting, available, must_include, len(reserved))
    assert (match and match[1]) == chosen


def test_the_oldest_pod_that_asks_for_as_much_is_meant() -> None:
    pods = [
        Reservation("team", name, name, created, {"main": {GPU: tuple(gpus)}})
        for name, created, gpus in (
            ("new", "2027", ("A",)),
            ("old", "2025", ("B",)),
            ("two", "2024", ("C", "D")),
        )
    ]
    match = matching_reservation(open_reservations(pods, {}, GPU), "ABCD", (), 1)
    assert match is not None
    assert (match[0].pod, match[1]) == ("old", ("B",))
