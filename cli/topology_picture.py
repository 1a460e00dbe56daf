"""A picture of a machine: GPUs on a circle by NUMA node, links as curves, NVSwitches in the middle.

On a circle no curve runs behind a GPU that it does not belong to, and no text stands on a line: the legend
tells what a line is. The picture is a list of shapes; `topology_drawing` writes it as SVG or PNG.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mcp2026.api.gpu_topology import GpuStatus
from mcp2026.cli.topology_table import broken_lines, health, holders, sharing
from mcp2026.topology.affinity import PCIE_GB_PER_S
from mcp2026.topology.links import Link, LinkKind, fabric_bandwidths, links, off_fabric
from mcp2026.topology.machine import Description, Gpu, Machine, PcieAncestor

Anchor = Literal["start", "middle", "end"]

BOX_WIDTH = 118
BOX_HEIGHT = 60
MARGIN = 24
LINE_HEIGHT = 18
LETTER_WIDTH = 9
NUMA_BAND = 26
TITLE_HEIGHT = 56
LEAST_RADIUS = 165
MOST_REMARKS = 10

INK = "#1f2933"
FAINT = "#66727f"
NUMA_COLOURS = ("#dbe9f6", "#fde8d0", "#e2f0d9", "#ece2f2", "#f6dfe4", "#dff1f1", "#f5f0d3", "#e6e6e6")
UNKNOWN_NUMA_COLOUR = "#eeeeee"
LINK_COLOURS = {LinkKind.NVLINK: "#2e7d32", LinkKind.NVSWITCH: "#1565c0", LinkKind.PCIE: "#8a96a3"}
NEAR_PCIE_COLOUR = "#b06000"
"""Of GPUs that have PCIe switches alone between them."""
HEALTH_COLOURS = {"Healthy": "#ffffff", "Degraded": "#ffe08a", "Unhealthy": "#f4a6a0"}
HEALTH_MARKS = {"Healthy": "", "Degraded": "degraded", "Unhealthy": "UNHEALTHY"}


@dataclass(frozen=True, slots=True)
class Sector:
    """A part of a ring around (x, y), between two angles in radians, clockwise from the top."""

    x: float
    y: float
    inner: float
    outer: float
    start: float
    end: float
    fill: str


@dataclass(frozen=True, slots=True)
class Curve:
    """From one point to another, bent towards `bend`. `dashed`: a link over PCIe."""

    start: tuple[float, float]
    bend: tuple[float, float]
    end: tuple[float, float]
    colour: str
    width: float
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with round corners; (x, y) is its upper left one."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    outline: str
    outline_width: float = 1.5


@dataclass(frozen=True, slots=True)
class Text:
    """One line; (x, y) is on its base line."""

    x: float
    y: float
    text: str
    size: int = 12
    anchor: Anchor = "start"
    bold: bool = False
    colour: str = INK


Shape = Sector | Curve | Box | Text


@dataclass(frozen=True, slots=True)
class Picture:
    """Shapes from the back to the front, in pixels from the upper left corner."""

    title: str
    width: float
    height: float
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class _LineStyle:
    colour: str
    width: float
    dashed: bool
    meaning: str
    bandwidth: int


def picture(description: Description) -> Picture:
    """Return the picture of a machine."""
    machine = description.machine
    order = sorted(range(len(machine.gpus)), key=lambda place: (_numa_rank(machine.gpus[place]), place))
    count = len(order)
    apart = math.sin(math.pi / count) if count > 1 else 1.0
    radius = 0.0 if count == 1 else max(LEAST_RADIUS, (BOX_WIDTH + 18) / 2 / apart)
    outer = radius + BOX_WIDTH / 2 + 16
    half = outer + NUMA_BAND + MARGIN
    styles = _line_styles(machine)
    legend = _legend(machine, styles)
    remarks = _remarks(description)
    longest = max((len(_numa_label(gpu)) for gpu in machine.gpus), default=0)
    width = max(2 * (outer + longest * LETTER_WIDTH + MARGIN), 620.0)
    center = (width / 2, TITLE_HEIGHT + half)
    angles = {place: 2 * math.pi * (turn + 0.5) / count for turn, place in enumerate(order)}
    spots = {place: _at(center, radius, angle) for place, angle in angles.items()}

    shapes: list[Shape] = [*_title(machine, width)]
    shapes += _numa_sectors(machine, order, center, outer)
    shapes += _curves(machine, spots, center, styles)
    if any(fabric_bandwidths(machine)):
        shapes += _fabric(center)
    statuses = description.topology.status.gpus if description.topology else None
    off = off_fabric(machine)
    for place in order:
        status = statuses[place] if statuses else None
        shapes += _gpu(machine.gpus[place], spots[place], status, off=place in off)
    bottom = TITLE_HEIGHT + 2 * half + MARGIN
    for row, style in enumerate(legend):
        shapes += _legend_row(MARGIN, bottom + row * LINE_HEIGHT, style)
    bottom += (len(legend) + 1) * LINE_HEIGHT
    for row, remark in enumerate(remarks):
        shapes.append(Text(MARGIN, bottom + row * LINE_HEIGHT, remark))
    height = bottom + len(remarks) * LINE_HEIGHT
    return Picture(f"GPU topology of {machine.name}", width, height, tuple(shapes))


def _numa_rank(gpu: Gpu) -> tuple[bool, int]:
    return gpu.numa_node is None, gpu.numa_node or 0


def _numa_label(gpu: Gpu) -> str:
    return "NUMA unknown" if gpu.numa_node is None else f"NUMA {gpu.numa_node}"


def _at(center: tuple[float, float], radius: float, angle: float) -> tuple[float, float]:
    """Return the point at `angle`, clockwise from the top."""
    return center[0] + radius * math.sin(angle), center[1] - radius * math.cos(angle)


def _title(machine: Machine, width: float) -> list[Shape]:
    products = list(dict.fromkeys(gpu.product for gpu in machine.gpus))
    counts = ", ".join(
        f"{sum(gpu.product == product for gpu in machine.gpus)} x {product}" for product in products
    )
    versions = ", ".join(
        f"{name} {value}" for name, value in (("driver", machine.driver), ("CUDA", machine.cuda)) if value
    )
    return [
        Text(width / 2, 26, machine.name, 17, "middle", bold=True),
        Text(
            width / 2,
            46,
            "; ".join(filter(None, (counts, versions))) or "no GPUs",
            12,
            "middle",
            colour=FAINT,
        ),
    ]


def _numa_sectors(
    machine: Machine, order: Sequence[int], center: tuple[float, float], outer: float
) -> list[Shape]:
    shapes: list[Shape] = []
    count = len(order)
    nodes = list(dict.fromkeys(machine.gpus[place].numa_node for place in order))
    step = 2 * math.pi / count if count else 0.0
    gap = 0.0 if len(nodes) == 1 else min(0.06, step / 8)
    for number, node in enumerate(nodes):
        turns = [turn for turn, place in enumerate(order) if machine.gpus[place].numa_node == node]
        start, end = turns[0] * step + gap, (turns[-1] + 1) * step - gap
        fill = UNKNOWN_NUMA_COLOUR if node is None else NUMA_COLOURS[number % len(NUMA_COLOURS)]
        shapes.append(Sector(*center, 0, outer, start, end, fill))
        label = _numa_label(machine.gpus[order[turns[0]]])
        middle = (start + end) / 2
        x, y = _at(center, outer + NUMA_BAND / 2, middle)
        side = math.sin(middle)
        anchor: Anchor = "middle" if abs(side) < 0.3 else "start" if side > 0 else "end"
        shift = 0 if anchor == "middle" else -NUMA_BAND / 2 if anchor == "start" else NUMA_BAND / 2
        shapes.append(Text(x + shift, y + 4, label, 12, anchor, bold=True, colour=FAINT))
    return shapes


def _curves(
    machine: Machine,
    spots: dict[int, tuple[float, float]],
    center: tuple[float, float],
    styles: dict[tuple[str, int, int, int], _LineStyle],
) -> list[Shape]:
    """Return the lines, slowest first, so that fast ones lie on top."""
    drawn: list[tuple[int, Shape]] = []
    for link in links(machine):
        if link.kind is LinkKind.NVSWITCH or _is_far(link):
            continue
        style = styles[_style_key(link)]
        start, end = spots[link.a], spots[link.b]
        pull = 0.55 if len(spots) > 4 else 0.8
        bend = (
            center[0] + ((start[0] + end[0]) / 2 - center[0]) * pull,
            center[1] + ((start[1] + end[1]) / 2 - center[1]) * pull,
        )
        drawn.append(
            (style.bandwidth, Curve(start, bend, end, style.colour, style.width, dashed=style.dashed))
        )
    for place, bandwidth in enumerate(fabric_bandwidths(machine)):
        if bandwidth:
            style = styles[("fabric", bandwidth, 0, 0)]
            drawn.append((bandwidth, Curve(center, center, spots[place], style.colour, style.width)))
    return [shape for _, shape in sorted(drawn, key=lambda entry: entry[0])]


def _is_far(link: Link) -> bool:
    """Tell whether two GPUs are joined by no more than the link between sockets, which is not drawn."""
    return link.kind is LinkKind.PCIE and link.ancestor is PcieAncestor.SYSTEM


def _style_key(link: Link) -> tuple[str, int, int, int]:
    if link.kind is LinkKind.PCIE:
        return "pcie", int(link.ancestor), 0, 0
    return "nvlink", link.bandwidth_gb_per_s, link.count, link.version


def _line_styles(machine: Machine) -> dict[tuple[str, int, int, int], _LineStyle]:
    styles: dict[tuple[str, int, int, int], _LineStyle] = {}
    for link in links(machine):
        if link.kind is LinkKind.NVLINK:
            version = f" {link.version}" if link.version else ""
            styles[_style_key(link)] = _LineStyle(
                LINK_COLOURS[link.kind],
                _line_width(link.bandwidth_gb_per_s),
                dashed=False,
                meaning=f"{link.count} x NVLink{version}: {link.bandwidth_gb_per_s} GB/s",
                bandwidth=link.bandwidth_gb_per_s,
            )
        elif link.kind is LinkKind.PCIE and not _is_far(link):
            near = link.ancestor < PcieAncestor.HOSTBRIDGE
            styles[_style_key(link)] = _LineStyle(
                NEAR_PCIE_COLOUR if near else LINK_COLOURS[link.kind],
                _line_width(link.bandwidth_gb_per_s),
                dashed=True,
                meaning=f"PCIe, {_ANCESTORS[link.ancestor]}: {link.bandwidth_gb_per_s} GB/s",
                bandwidth=link.bandwidth_gb_per_s,
            )
    for place, bandwidth in enumerate(fabric_bandwidths(machine)):
        if bandwidth:
            own = [link for link in machine.gpus[place].nvlinks if link.peer is None]
            version = f" {own[0].version}" if own[0].version else ""
            styles["fabric", bandwidth, 0, 0] = _LineStyle(
                LINK_COLOURS[LinkKind.NVSWITCH],
                _line_width(bandwidth),
                dashed=False,
                meaning=f"{len(own)} x NVLink{version} to NVSwitches: {bandwidth} GB/s to each GPU there",
                bandwidth=bandwidth,
            )
    return styles


_ANCESTORS = {
    PcieAncestor.INTERNAL: "on one board",
    PcieAncestor.SINGLE: "one switch between",
    PcieAncestor.MULTIPLE: "several switches between",
    PcieAncestor.HOSTBRIDGE: "one host bridge between",
    PcieAncestor.NODE: "inside a NUMA node",
    PcieAncestor.SYSTEM: "between CPU sockets",
}


def _line_width(bandwidth: int) -> float:
    """Return a width in pixels that grows with the logarithm: 10 GB/s 1, 900 GB/s 5.5."""
    return round(1 + max(0.0, math.log10(max(bandwidth, 1) / 10)) * 2.3, 1)


def _legend(machine: Machine, styles: dict[tuple[str, int, int, int], _LineStyle]) -> list[_LineStyle]:
    rows = sorted(styles.values(), key=lambda style: (-style.bandwidth, style.meaning))
    if any(_is_far(link) for link in links(machine)):
        far = PCIE_GB_PER_S[PcieAncestor.SYSTEM]
        rows.append(
            _LineStyle(
                "none",
                0,
                dashed=False,
                meaning=f"no line: PCIe, {_ANCESTORS[PcieAncestor.SYSTEM]}: {far} GB/s",
                bandwidth=far,
            )
        )
    return rows


def _legend_row(x: float, y: float, style: _LineStyle) -> list[Shape]:
    row: list[Shape] = [Text(x + 50, y + 4, style.meaning)]
    if style.width:
        row.append(Curve((x, y), (x + 20, y), (x + 40, y), style.colour, style.width, dashed=style.dashed))
    return row


def _fabric(center: tuple[float, float]) -> list[Shape]:
    x, y = center
    return [
        Box(x - 48, y - 17, 96, 34, "#e3f0fd", LINK_COLOURS[LinkKind.NVSWITCH], 2),
        Text(x, y + 4, "NVSwitches", 12, "middle", bold=True),
    ]


def _gpu(gpu: Gpu, spot: tuple[float, float], status: GpuStatus | None, *, off: bool) -> list[Shape]:
    x, y = spot
    how = health(gpu)
    marks = [mark for mark in (HEALTH_MARKS[how], "off fabric" if off else "") if mark]
    if gpu.inactive_links:
        marks.append(f"{len(gpu.inactive_links)} down")
    line = ", ".join(marks)
    if not line and status is not None:
        line = _shortened(holders(status) or (sharing(status) if sharing(status) != "Exclusive" else ""))
    wrong = how == "Unhealthy" or off
    return [
        Box(
            x - BOX_WIDTH / 2,
            y - BOX_HEIGHT / 2,
            BOX_WIDTH,
            BOX_HEIGHT,
            HEALTH_COLOURS["Degraded" if off and how == "Healthy" else how],
            "#b3261e" if wrong else INK,
            2.5 if wrong else 1.5,
        ),
        Text(x, y - 10, f"GPU {gpu.index}", 14, "middle", bold=True),
        Text(x, y + 6, gpu.pci_bus_id, 11, "middle", colour=FAINT),
        Text(x, y + 22, line, 11, "middle", bold=bool(marks)),
    ]


def _shortened(text: str, most: int = 18) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _remarks(description: Description) -> list[str]:
    machine = description.machine
    remarks = [
        f"GPU {machine.gpus[place].index} is off the NVSwitch fabric." for place in off_fabric(machine)
    ]
    for status in description.topology.status.gpus if description.topology else ():
        if status.health != "Healthy":
            reason = status.health_message or status.health_reason
            remarks.append(
                f"GPU {status.index} is {status.health.lower()}" + (f": {reason}" if reason else "")
            )
    remarks += [f"{line}, does not count." for line in broken_lines(machine)]
    if len(remarks) > MOST_REMARKS:
        remarks = [*remarks[: MOST_REMARKS - 1], f"and {len(remarks) - MOST_REMARKS + 1} more"]
    return [_shortened(remark, 96) for remark in remarks]
