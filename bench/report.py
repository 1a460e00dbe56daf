"""The tables of a comparison in Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from statistics import median

from bench.peers.catalogue import CEILING, NO_SERVER, OURS
from bench.ratios import Row, rows
from bench.results import Cell, ResultFile, Settings, Start

_COLUMNS = (
    "in flight",
    "server",
    "answers/s",
    "min to max",
    "p50 ms",
    "p99 ms",
    "errors",
    "of raw",
    "of bare",
    "of best peer",
)


def report(results: ResultFile) -> str:
    """Return all tables with the machine, the versions and the noise."""
    found = rows(results.rounds())
    found.sort(key=_place)
    reasons = results.reasons()
    parts = [header(results.settings, results.starts)]
    for (model, protocol), group in groupby(found, key=lambda row: (row.cell.model, row.cell.protocol)):
        parts.append(f"### {model}, {protocol}\n\n{_table(list(group))}")
    if reasons:
        parts.append(_without_result(reasons))
    if found:
        parts.append(_noise(found))
    return "\n\n".join(parts) + "\n"


def _place(row: Row) -> tuple[str, str, int, int, float]:
    """Sort ours first, then the ceilings, then the peers from the fastest on."""
    first = (OURS, CEILING, *NO_SERVER)
    name = row.cell.server.partition("@")[0]
    kind = first.index(name) if name in first else len(first)
    return row.cell.model, row.cell.protocol, row.cell.concurrency, kind, -row.rate


def header(settings: Settings | None, starts: Sequence[Start]) -> str:
    """Return where, how and with what was measured."""
    lines = []
    if starts:
        machine = starts[-1].machine
        lines.append(
            f"{machine.processor}, {machine.cores} cores, {machine.memory_gib} GiB, Linux {machine.kernel}, "
            f"{machine.date} UTC, load average at the start {machine.load}."
        )
        merged = {name: version for start in starts for name, version in start.versions.items()}
        lines.append(", ".join(f"{name} {version}" for name, version in merged.items()) + ".")
    if settings:
        lines.append(
            f"Servers on core {settings.server_cores}, client on core {settings.client_cores}, "
            f"{settings.threads} compute thread(s), batches of at most {settings.max_batch_size}, "
            f"delay of batching peers {settings.delay_ms} ms, {settings.seconds:g} s a cell, "
            f"{'real-time priority' if settings.realtime else f'niceness {settings.niceness}'}."
        )
    return "\n".join(lines)


def _table(found: Iterable[Row]) -> str:
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    lines += ["| " + " | ".join(_values(row)) + " |" for row in found]
    return "\n".join(lines)


def _values(row: Row) -> list[str]:
    return [
        str(row.cell.concurrency),
        row.cell.server,
        number(row.rate),
        f"{number(row.lowest)} to {number(row.highest)}",
        number(row.p50_ms),
        number(row.p99_ms),
        str(row.errors),
        *(_ratio(value) for value in (row.to_raw, row.to_bare, row.to_best_peer)),
    ]


def number(value: float) -> str:
    """Return three significant digits, or whole numbers with commas above 100."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def _without_result(reasons: Mapping[Cell, str]) -> str:
    """Return one line for each server and reason; concurrency makes no difference."""
    lines: dict[str, None] = {}
    for cell, reason in reasons.items():
        first = reason.partition("\n")[0]
        lines[f"- {cell.server}, {cell.model}, {cell.protocol}: {first}"] = None
    return "Without a result:\n\n" + "\n".join(lines)


def _noise(found: Sequence[Row]) -> str:
    spreads = sorted(row.spread for row in found)
    counts = sorted({row.rounds for row in found})
    return (
        f"Rounds: {', '.join(map(str, counts))}. Spread of a cell over its rounds, (max - min) / median: "
        f"median {median(spreads):.0%}, worst {spreads[-1]:.0%}. Ratios pair the rounds of both servers."
    )
