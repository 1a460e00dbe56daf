"""The tables of a simulation, and the same as plain data for JSON."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.simulation.cluster import SIZES
from bench.simulation.figures import Figures, Spread, ratio, spread
from bench.simulation.product import ProductPolicy
from bench.simulation.static_and_mig import LOSSES, RATES, Outcome

PLACEMENT_NOTE = "Simulated; ours is the product's code. Medians over seeds (lowest to highest)."
MIG_NOTE = (
    "Simulated queues with assumed sizes and run times; no GPU was measured. The headline's are fitted to it."
)

Figure = Callable[[Figures], float]
_FIGURES: Sequence[tuple[str, Figure]] = (
    ("wait mean s", lambda row: row.wait_mean_s),
    ("wait p50 s", lambda row: row.wait_p50_s),
    ("wait p99 s", lambda row: row.wait_p99_s),
    ("link of machine's best", lambda row: row.link_of_machine),
    ("link of fleet's best", lambda row: row.link_of_fleet),
    ("SLO missed", lambda row: row.slo_misses),
    ("batch slowdown", lambda row: row.slowdown),
    ("utilisation", lambda row: row.utilisation),
    *((f"stranded for {size}", lambda row, size=size: row.stranded_by_number[size]) for size in SIZES),
    *((f"by links, {size}", lambda row, size=size: row.stranded_by_links[size]) for size in SIZES),
)
_RATIOS = ("wait mean s", "wait p99 s", "link of fleet's best", "SLO missed", "stranded for 2", "by links, 2")


def placement_tables(found: Mapping[str, Sequence[Figures]]) -> list[str]:
    """Return the lines of two tables: figures by policy, and ours over each other."""
    ours = found[ProductPolicy.name]
    figures = [
        [name, *(_spread(spread(rows, figure)) for name, rows in found.items())] for name, figure in _FIGURES
    ]
    by_name = dict(_FIGURES)
    others = [name for name in found if name != ProductPolicy.name]
    ratios = [
        [name, *(_spread(ratio(ours, found[other], by_name[name])) for other in others)] for name in _RATIOS
    ]
    return [
        *_table(["", *found], figures),
        "",
        *_table(["ours / other", *others], ratios),
    ]


def mig_table(found: Sequence[Mapping[str, Outcome]]) -> list[str]:
    """Return the lines of a table of arrangements, medians over seeds."""
    columns: Sequence[tuple[str, Callable[[Outcome], float], str]] = (
        ("models side by side", lambda case: case.models, ".0f"),
        ("of", lambda case: case.offered, ".0f"),
        ("memory used %", lambda case: 100 * case.memory_use, ".0f"),
        ("p50 ms", lambda case: case.p50_ms, ".0f"),
        ("P99 ms", lambda case: case.p99_ms, ".0f"),
        ("P99 ms, worst model", lambda case: case.worst_p99_ms, ".0f"),
        ("requests late or unserved %", lambda case: 100 * case.missed, ".1f"),
    )
    rows = [
        [name, *(_spread(Spread.of([read(case[name]) for case in found]), form) for _, read, form in columns)]
        for name in found[0]
    ]
    return _table(["", *(name for name, _, _ in columns)], rows)


def sensitivity_table(found: Mapping[tuple[float, float], float | None]) -> list[str]:
    """Return the lines of a table of P99 of seven slices over P99 of static thirds."""
    rows = [
        [f"{loss:g}", *(_number(found[loss, rate], "slices overloaded") for rate in RATES)] for loss in LOSSES
    ]
    return _table(["loss on a slice", *(f"{rate:g} of the headline's rate" for rate in RATES)], rows)


def placement_data(found: Mapping[str, Sequence[Figures]]) -> dict[str, Any]:
    """Return all figures of all policies and seeds."""
    return {name: [asdict(row) for row in rows] for name, rows in found.items()}


def mig_data(found: Sequence[Mapping[str, Outcome]]) -> list[dict[str, Any]]:
    """Return all figures of all arrangements, by seed."""
    return [{name: asdict(case) for name, case in cases.items()} for cases in found]


def sensitivity_data(found: Mapping[tuple[float, float], float | None]) -> list[dict[str, Any]]:
    """Return the ratios with what they belong to."""
    return [{"loss": loss, "rate": rate, "p99_ratio": value} for (loss, rate), value in found.items()]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = (header, ["---"] * len(header), *rows)
    return [f"| {' | '.join(line)} |" for line in lines]


def _number(value: float | None, missing: str) -> str:
    return missing if value is None else f"{value:.2f}"


def _spread(values: Spread | None, form: str = "") -> str:
    if values is None:
        return "n/a"
    form = form or (".0f" if values.highest >= 10 else ".2f")
    middle, lowest, highest = (
        format(value, form) for value in (values.median, values.lowest, values.highest)
    )
    return middle if lowest == highest else f"{middle} ({lowest} to {highest})"
