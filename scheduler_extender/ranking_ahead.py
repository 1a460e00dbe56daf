"""Ranks the nodes that fit before kube-scheduler asks for it, while it does its own scoring.

After filter kube-scheduler asks prioritize about the same pod, with the nodes that filter let through, in the
order in which it was told them. So the body of that question is known, byte by byte, once filter is answered.
Any other question is answered when it is asked.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

AHEAD_SECONDS = 1.0
"""How old a ranking may be: kube-scheduler asks for it some ms after filter, on a busy machine some 100."""
_NAMES = b'"NodeNames":'

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Expected(Generic[T]):
    body: bytes
    at: float
    ranking: asyncio.Task[T]


class RankingAhead(Generic[T]):
    """The ranking that will be asked for next: one, as a kube-scheduler places one pod at a time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._expected: _Expected[T] | None = None

    def begin(
        self, filter_body: bytes, names: tuple[str, ...], ranking: Callable[[], Coroutine[Any, Any, T]]
    ) -> None:
        """Begin `ranking` of `names`, the answer to `filter_body`; what was expected before goes."""
        self._expected = None
        body = next_body(filter_body, names)
        if body is not None:
            task = asyncio.create_task(ranking())
            task.add_done_callback(_told)
            self._expected = _Expected(body, self._clock(), task)

    def take(self, body: bytes) -> asyncio.Task[T] | None:
        """Return the ranking that `body` asks for, if it was begun a short while ago."""
        expected = self._expected
        if expected is None or expected.body != body or self._clock() - expected.at > AHEAD_SECONDS:
            return None
        self._expected = None
        return expected.ranking


def next_body(filter_body: bytes, names: tuple[str, ...]) -> bytes | None:
    """Return what prioritize will be asked; None where nodes were not given by name, as the last member."""
    head, found, _ = filter_body.rpartition(_NAMES)
    return b"".join((head, _NAMES, msgspec.json.encode(names), b"}")) if found else None


def _told(ranking: asyncio.Task[Any]) -> None:
    """Look at how it ended: one that nobody asks for must not be complained of."""
    if not ranking.cancelled():
        ranking.exception()
