"""From the rounds of all cells to medians, spreads and ratios. A ratio pairs the rounds of two servers."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from bench.client.load import LoadResult
from bench.peers.catalogue import CEILING, RAW, is_peer
from bench.results import Cell

Rounds = Mapping[int, LoadResult]


@dataclass(frozen=True)
class Row:
    """One cell over its rounds. Ratios are of rates; None where the other one was not measured."""

    cell: Cell
    rounds: int
    rate: float
    lowest: float
    highest: float
    p50_ms: float
    p99_ms: float
    errors: int
    to_raw: float | None
    to_bare: float | None
    to_best_peer: float | None
    best_peer: str | None

    @property
    def spread(self) -> float:
        """How far apart the rounds are, as a part of the median."""
        return (self.highest - self.lowest) / self.rate if self.rate else 0.0


def paired_ratio(rounds: Rounds, reference: Rounds) -> float | None:
    """Return the median of the ratios of the rates in the rounds that both have.

    Noise that lasts longer than a round hits both sides of each ratio alike.
    """
    ratios = [
        rounds[number].rate / reference[number].rate
        for number in rounds.keys() & reference.keys()
        if reference[number].rate
    ]
    return median(ratios) if ratios else None


def best_peer(cells: Mapping[Cell, Rounds], like: Cell) -> Cell | None:
    """Return the cell of the other server with the highest median rate under the same load."""
    rivals = {
        cell: median(result.rate for result in rounds.values())
        for cell, rounds in cells.items()
        if is_peer(cell.server) and _same_load(cell, like)
    }
    return max(rivals, key=lambda cell: rivals[cell]) if rivals else None


def _same_load(one: Cell, other: Cell) -> bool:
    return (one.model, one.protocol, one.concurrency) == (other.model, other.protocol, other.concurrency)


def rows(cells: Mapping[Cell, Rounds]) -> list[Row]:
    """Return a row for each cell, in the order of the cells."""
    return [_row(cell, cells) for cell in cells]


def _row(cell: Cell, cells: Mapping[Cell, Rounds]) -> Row:
    rounds = cells[cell]
    results = list(rounds.values())
    rates = [result.rate for result in results]

    def ratio(server: str | None) -> float | None:
        if server is None or server == cell.server:
            return None
        reference = cells.get(Cell(cell.model, cell.protocol, cell.concurrency, server))
        return paired_ratio(rounds, reference) if reference else None

    rival = best_peer(cells, cell)
    return Row(
        cell=cell,
        rounds=len(results),
        rate=median(rates),
        lowest=min(rates),
        highest=max(rates),
        p50_ms=median(result.p50_ms for result in results),
        p99_ms=median(result.p99_ms for result in results),
        errors=sum(result.errors for result in results),
        to_raw=ratio(RAW),
        to_bare=ratio(CEILING),
        to_best_peer=ratio(rival.server if rival else None),
        best_peer=rival.server if rival else None,
    )
