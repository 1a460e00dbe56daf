"""Draws the medians of a comparison: one panel per model and protocol, one line per server."""

from itertools import groupby
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # before pyplot, which would look for a display

from matplotlib import pyplot
from matplotlib.axes import Axes

from bench.peers.catalogue import OURS
from bench.ratios import Row, rows
from bench.results import ResultFile

_INCHES = (6.0, 4.2)
_DOTS_PER_INCH = 120
_WIDE, _NARROW = 2.5, 1.2


def draw(results: ResultFile, target: Path) -> None:
    """Write the plot as PNG. Both axes are logarithmic; bars reach from the slowest to the fastest round."""
    found = sorted(rows(results.rounds()), key=_panel)
    panels = [(name, list(group)) for name, group in groupby(found, key=_panel)]
    # One concurrency makes no line; such a panel says less than its table.
    panels = [panel for panel in panels if len({row.cell.concurrency for row in panel[1]}) > 1] or panels
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(_INCHES[0] * columns, _INCHES[1] * lines), squeeze=False
    )
    for place in axes.flat[len(panels) :]:
        place.set_visible(False)
    servers = dict.fromkeys(row.cell.server for _, panel in panels for row in panel)
    palette = pyplot.get_cmap("tab20")
    colours = {server: palette(index) for index, server in enumerate(servers)}
    for place, ((model, protocol), panel) in zip(axes.flat, panels, strict=False):
        for server in dict.fromkeys(row.cell.server for row in panel):
            _line(place, server, colours[server], [row for row in panel if row.cell.server == server])
        place.set(
            title=f"{model}, {protocol}",
            xlabel="requests on the way",
            ylabel="answers/s",
            xscale="log",
            yscale="log",
        )
        ticks = sorted({row.cell.concurrency for row in panel})
        place.set_xticks(ticks, [str(tick) for tick in ticks])
        place.minorticks_off()
        place.yaxis.set_major_formatter("{x:,.0f}")
        place.grid(alpha=0.3)
        place.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.01, 1.0))
    if results.starts:
        machine = results.starts[-1].machine
        figure.suptitle(f"{machine.processor}, {machine.cores} cores, {machine.date} UTC", fontsize="small")
    figure.tight_layout()
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=_DOTS_PER_INCH)
    pyplot.close(figure)


def _panel(row: Row) -> tuple[str, str]:
    return row.cell.model, row.cell.protocol


def _line(place: Axes, server: str, colour: tuple[float, float, float, float], panel: list[Row]) -> None:
    panel.sort(key=lambda row: row.cell.concurrency)
    rates = [row.rate for row in panel]
    below = [row.rate - row.lowest for row in panel]
    above = [row.highest - row.rate for row in panel]
    ours = server.startswith(OURS)
    place.errorbar(
        [row.cell.concurrency for row in panel],
        rates,
        yerr=[below, above],
        marker="o",
        markersize=3,
        label=server,
        color="black" if ours else colour,
        linewidth=_WIDE if ours else _NARROW,
    )
