"""Writes a picture as SVG, or as PNG where matplotlib is installed."""

import io
import math
from typing import Any
from xml.sax.saxutils import escape

from mcp2026.cli.errors import CommandError
from mcp2026.cli.topology_picture import Box, Curve, Picture, Sector, Shape, Text

FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"
CORNER = 8
PNG_SCALE = 2
"""Pixels of the PNG for one of the picture."""

_WHOLE_CIRCLE = 2 * math.pi - 1e-6


def svg(picture: Picture) -> str:
    """Return the picture as an SVG document."""
    width, height = _number(picture.width), _number(picture.height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" font-family="{FONT}">'
    )
    lines = [
        head,
        f"<title>{escape(picture.title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *(_svg_shape(shape) for shape in picture.shapes),
        "</svg>",
    ]
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _svg_shape(shape: Shape) -> str:
    match shape:
        case Sector():
            return _svg_sector(shape)
        case Curve():
            points = [_number(value) for point in (shape.start, shape.bend, shape.end) for value in point]
            dash = ' stroke-dasharray="5 4"' if shape.dashed else ""
            return (
                f'<path d="M{points[0]} {points[1]} Q{points[2]} {points[3]} {points[4]} {points[5]}" '
                f'fill="none" stroke="{shape.colour}" stroke-width="{shape.width}"{dash}/>'
            )
        case Box():
            return (
                f'<rect x="{_number(shape.x)}" y="{_number(shape.y)}" width="{_number(shape.width)}" '
                f'height="{_number(shape.height)}" rx="{CORNER}" fill="{shape.fill}" '
                f'stroke="{shape.outline}" stroke-width="{shape.outline_width}"/>'
            )
        case Text():
            weight = ' font-weight="bold"' if shape.bold else ""
            return (
                f'<text x="{_number(shape.x)}" y="{_number(shape.y)}" font-size="{shape.size}" '
                f'text-anchor="{shape.anchor}" fill="{shape.colour}"{weight}>{escape(shape.text)}</text>'
            )


def _svg_sector(sector: Sector) -> str:
    if sector.end - sector.start >= _WHOLE_CIRCLE:
        return (
            f'<circle cx="{_number(sector.x)}" cy="{_number(sector.y)}" r="{_number(sector.outer)}" '
            f'fill="{sector.fill}"/>'
        )
    points = [
        _number(value)
        for angle in (sector.start, sector.end)
        for value in (
            sector.x + sector.outer * math.sin(angle),
            sector.y - sector.outer * math.cos(angle),
        )
    ]
    large = int(sector.end - sector.start > math.pi)
    outer = _number(sector.outer)
    return (
        f'<path d="M{_number(sector.x)} {_number(sector.y)} L{points[0]} {points[1]} '
        f'A{outer} {outer} 0 {large} 1 {points[2]} {points[3]} Z" fill="{sector.fill}"/>'
    )


def png(picture: Picture) -> bytes:
    """Return the picture as a PNG.

    Raises:
        CommandError: matplotlib is not installed.

    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.patches import FancyBboxPatch, PathPatch, Wedge
        from matplotlib.path import Path as Outline
    except ImportError as error:
        raise CommandError(
            "-o png needs matplotlib: pip install 'mcp2026[bench]'; -o svg needs nothing"
        ) from error
    points_per_pixel = 0.72
    figure = Figure(figsize=(picture.width / 100, picture.height / 100), dpi=100 * PNG_SCALE)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, picture.width)
    axes.set_ylim(picture.height, 0)
    axes.axis("off")
    for depth, shape in enumerate(picture.shapes):
        match shape:
            case Sector():
                start, end = (math.degrees(angle) - 90 for angle in (shape.start, shape.end))
                axes.add_patch(
                    Wedge((shape.x, shape.y), shape.outer, start, end, color=shape.fill, lw=0, zorder=depth)
                )
            case Curve():
                outline = Outline(
                    [shape.start, shape.bend, shape.end], [Outline.MOVETO, Outline.CURVE3, Outline.CURVE3]
                )
                axes.add_patch(
                    PathPatch(
                        outline,
                        fill=False,
                        edgecolor=shape.colour,
                        linewidth=shape.width * points_per_pixel,
                        linestyle=(0, (4, 3)) if shape.dashed else "solid",
                        zorder=depth,
                    )
                )
            case Box():
                axes.add_patch(
                    FancyBboxPatch(
                        (shape.x, shape.y),
                        shape.width,
                        shape.height,
                        boxstyle=f"round,pad=0,rounding_size={CORNER}",
                        facecolor=shape.fill,
                        edgecolor=shape.outline,
                        linewidth=shape.outline_width * points_per_pixel,
                        zorder=depth,
                    )
                )
            case Text():
                axes.text(
                    shape.x,
                    shape.y,
                    shape.text.replace("$", r"\$"),
                    fontsize=shape.size * points_per_pixel,
                    ha={"start": "left", "middle": "center", "end": "right"}[shape.anchor],
                    va="baseline",
                    color=shape.colour,
                    weight="bold" if shape.bold else "normal",
                    zorder=depth,
                )
    stream = io.BytesIO()
    canvas: Any = FigureCanvasAgg(figure)  # whose methods have no types, where it is installed
    canvas.print_png(stream)
    return stream.getvalue()
