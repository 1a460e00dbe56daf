"""Pictures of machines: everything is on the page, no two GPUs overlap, no line runs behind a third."""

import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from mcp2026.cli.__main__ import app
from mcp2026.cli.errors import CommandError
from mcp2026.cli.topology_drawing import png, svg
from mcp2026.cli.topology_picture import BOX_WIDTH, Box, Curve, Picture, Text, picture
from mcp2026.topology.machine import Description, Machine, description_from_file, machine_from_file
from tests.unit.topology.reference import random_machine

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
FIXTURES = sorted(TOPOLOGIES.glob("*.yaml"))
NAMESPACE = "{http://www.w3.org/2000/svg}"


def boxes(drawn: Picture) -> list[Box]:
    return [shape for shape in drawn.shapes if isinstance(shape, Box) and shape.width == BOX_WIDTH]


def texts(drawn: Picture) -> list[str]:
    return [shape.text for shape in drawn.shapes if isinstance(shape, Text)]


def check_layout(drawn: Picture) -> None:
    gpus = boxes(drawn)
    for one, other in combinations(gpus, 2):
        apart = abs(one.x - other.x) >= one.width or abs(one.y - other.y) >= one.height
        assert apart, "two GPUs overlap"
    for shape in drawn.shapes:
        if isinstance(shape, Box):
            assert 0 <= shape.x <= drawn.width - shape.width
            assert 0 <= shape.y <= drawn.height - shape.height
        if isinstance(shape, Text):
            length = 0.62 * shape.size * len(shape.text)
            left = {"start": 0.0, "middle": length / 2, "end": length}[shape.anchor]
            assert 0 <= shape.x - left <= drawn.width - length, shape.text
            assert 0 <= shape.y <= drawn.height
        if isinstance(shape, Curve):
            crossed = [box for box in gpus if _touches(shape, box)]
            assert len(crossed) <= 2, "a line runs behind a GPU that it does not belong to"


def _touches(curve: Curve, box: Box) -> bool:
    for step in range(41):
        t = step / 40
        x, y = (
            (1 - t) ** 2 * start + 2 * t * (1 - t) * bend + t**2 * end
            for start, bend, end in zip(curve.start, curve.bend, curve.end, strict=True)
        )
        if box.x < x < box.x + box.width and box.y < y < box.y + box.height:
            return True
    return False


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_every_fixture_is_drawn_without_overlaps(path: Path) -> None:
    description = description_from_file(path)
    drawn = picture(description)
    check_layout(drawn)
    assert len(boxes(drawn)) == len(description.machine.gpus)
    root = ElementTree.fromstring(svg(drawn))
    written = [element.text for element in root.iter(f"{NAMESPACE}text")]
    for gpu in description.machine.gpus:
        assert f"GPU {gpu.index}" in written
        assert gpu.pci_bus_id in written


@pytest.mark.parametrize("size", [1, 2, 3, 5, 12, 32, 64])
def test_machines_of_any_size_are_drawn_without_overlaps(size: int) -> None:
    check_layout(picture(Description(random_machine(Random(size), size))))


def test_a_machine_without_gpus_is_a_picture_too() -> None:
    ElementTree.fromstring(svg(picture(Description(Machine("empty", (), ())))))


def test_the_legend_tells_what_lines_are() -> None:
    told = texts(picture(description_from_file(TOPOLOGIES / "4xa100-pcie-half-bridged.yaml")))
    assert "12 x NVLink 3: 300 GB/s" in told
    assert "PCIe, inside a NUMA node: 16 GB/s" in told
    assert "no line: PCIe, between CPU sockets: 10 GB/s" in told


def test_faster_links_are_wider() -> None:
    drawn = picture(description_from_file(TOPOLOGIES / "dgx-1v-8xv100.yaml"))
    widths = {shape.width for shape in drawn.shapes if isinstance(shape, Curve) and not shape.dashed}
    assert len(widths) == 2


def test_a_gpu_off_the_fabric_and_sick_ones_are_marked() -> None:
    machine = machine_from_file(TOPOLOGIES / "hgx-b200-8gpu-one-off-fabric.yaml")
    sick = replace(
        machine,
        name="<n> & $x$",
        gpus=(
            replace(machine.gpus[0], healthy=False),
            replace(machine.gpus[1], degraded=True, inactive_links=(18,)),
            *machine.gpus[2:],
        ),
    )
    drawn = picture(Description(sick))
    told = texts(drawn)
    assert {"UNHEALTHY", "degraded, 1 down", "off fabric", "GPU 2 is off the NVSwitch fabric."} <= set(told)
    assert "NVLink 18 of GPU 1: down, does not count." in told
    fills = {box.fill for box in boxes(drawn)}
    assert len(fills) == 3
    assert "&lt;n&gt; &amp; $x$" in svg(drawn)


def test_many_remarks_are_cut_short() -> None:
    machine = machine_from_file(TOPOLOGIES / "dgx-2-16xv100.yaml")
    worn = replace(machine, gpus=tuple(replace(gpu, inactive_links=(7,)) for gpu in machine.gpus))
    assert texts(picture(Description(worn)))[-1] == "and 7 more"


def test_the_command_writes_svg(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["topology", "-f", str(FIXTURES[0]), "-o", "svg"])
    assert result.exit_code == 0
    assert result.stdout.startswith("<svg ")


def test_png_is_drawn_by_matplotlib_or_refused_with_what_to_do() -> None:
    drawn = picture(description_from_file(TOPOLOGIES / "4xa100-pcie-half-bridged.yaml"))
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        with pytest.raises(CommandError, match=r"pip install 'mcp2026\[bench\]'; -o svg needs nothing"):
            png(drawn)
    else:
        image = png(drawn)
        assert image.startswith(b"\x89PNG")
        width = int.from_bytes(image[16:20], "big")
        assert math.isclose(width, 2 * drawn.width, rel_tol=0.01)
