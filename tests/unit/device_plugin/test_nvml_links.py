"""Which links lead where, and which of them ought to be up: without a driver."""

import pytest

from mcp2026.device_plugin.adapters.nvml.links import GpuLinks, KnownLinks, LinkReading, nvlinks
from mcp2026.topology.machine import NvLink

GPU, NPU, SWITCH, UNKNOWN = 0, 1, 2, 255
BUSES = {"00000000:01:00.0": 0, "00000000:02:00.0": 1}


@pytest.mark.parametrize(
    ("kind", "bus", "leads_to"),
    [
        pytest.param(GPU, "00000000:02:00.0", [NvLink(3, 1, 4)], id="a GPU of the machine"),
        pytest.param(GPU, "00000000:09:00.0", [], id="a GPU of another machine"),
        pytest.param(GPU, "", [], id="a GPU without a bus id"),
        pytest.param(SWITCH, "", [NvLink(3, None, 4)], id="a switch"),
        pytest.param(SWITCH, "00000000:05:00.0", [NvLink(3, None, 4)], id="a switch with a bus id"),
        pytest.param(UNKNOWN, "", [NvLink(3, None, 4)], id="a switch that a virtual machine hides"),
        pytest.param(UNKNOWN, "00000000:09:00.0", [NvLink(3, None, 4)], id="a bus id that nobody knows"),
        pytest.param(UNKNOWN, "00000000:02:00.0", [NvLink(3, 1, 4)], id="a known bus id of unknown kind"),
        pytest.param(NPU, "00000000:0A:00.0", [], id="a POWER processor"),
    ],
)
def test_a_link_leads_to(kind: int, bus: str, leads_to: list[NvLink]) -> None:
    assert list(nvlinks([LinkReading(3, kind, bus, 4)], BUSES)) == leads_to


def gpu(name: str, up: range | tuple[int, ...], product: str = "A100", *, switched: bool = False) -> GpuLinks:
    return GpuLinks(name, product, frozenset(up), switched)


TWELVE = frozenset(range(12))


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        pytest.param([gpu("a", ()), gpu("b", ())], {"a": set(), "b": set()}, id="no links, none expected"),
        pytest.param(
            [gpu("a", range(12)), gpu("b", range(12)), gpu("c", ()), gpu("d", ())],
            {"a": TWELVE, "c": set()},
            id="a GPU without a bridge beside bridged ones",
        ),
        pytest.param(
            [gpu("a", range(12)), gpu("b", range(12)), gpu("c", range(11)), gpu("d", range(11))],
            {"a": TWELVE, "c": TWELVE},
            id="a bridge with one link less than the other",
        ),
        pytest.param(
            [gpu("a", range(12)), gpu("b", range(11))], {"a": TWELVE, "b": TWELVE}, id="one end of a link"
        ),
        pytest.param(
            [*(gpu(name, range(18), switched=True) for name in "abcdefg"), gpu("h", ())],
            {"h": set(range(18))},
            id="a GPU that is off the fabric",
        ),
        pytest.param(
            [gpu("a", range(18), switched=True), gpu("b", (), "T4")],
            {"b": set()},
            id="a GPU of another kind beside a fabric",
        ),
        pytest.param(
            [gpu(name, range(12), "H100 NVL") for name in "abcd"],
            {"a": TWELVE},
            id="links that no board of the kind uses",
        ),
        pytest.param(
            [gpu("a", range(13)), gpu("b", range(12)), gpu("c", range(12))],
            {"a": set(range(13)), "b": TWELVE},
            id="a link that one of three has",
        ),
    ],
)
def test_links_that_ought_to_be_up(gpus: list[GpuLinks], expected: dict[str, set[int]]) -> None:
    known = KnownLinks()
    known.learn(gpus)
    assert {name: known.expected(name) for name in expected} == expected


def test_a_link_that_was_up_ought_to_be_up_for_ever() -> None:
    known = KnownLinks()
    known.learn([gpu("a", range(12)), gpu("b", range(12))])
    known.learn([gpu("a", ()), gpu("b", ())])
    assert known.expected("a") == TWELVE


def test_a_gpu_that_was_never_read_has_nothing_to_miss() -> None:
    assert KnownLinks().expected("x") == frozenset()
