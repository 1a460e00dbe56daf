"""Who may answer and write, as server and binder see it: in which term, and for how long (0117)."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from mcp2026.scheduler_extender.errors import BindingRefusedError


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether this process leads; whether anybody needs it to; and who leads instead of it, in words."""

    leads: bool
    asked: bool
    words: str = ""


class Leadership(Protocol):
    """The right to answer."""

    @property
    def terms(self) -> int:
        """How often this process has become the leader."""

    def standing(self) -> Standing:
        """Return whether this process leads, and who does."""

    def term(self) -> int:
        """Return the term in which an answer may be given now.

        Raises:
            NotLeadingError: another process is to be asked.

        """

    def writing(self, term: int) -> AbstractContextManager[float]:
        """Enclose a write that was decided in `term`; gives the seconds within which it must have ended.

        Raises:
            NotLeadingError: that term is over, or nearly.

        """


class Alone:
    """There is no other extender."""

    terms = 1

    def standing(self) -> Standing:
        """Lead always."""
        return Standing(leads=True, asked=True)

    def term(self) -> int:
        """Return the one term."""
        return self.terms

    @contextmanager
    def writing(self, _: int) -> Iterator[float]:
        """Set no limit."""
        yield math.inf


class WritesUnderWay:
    """Which writes may still take effect. `now` is in seconds."""

    def __init__(self) -> None:
        self._under_way = 0
        self._unclear_until = -math.inf

    def settled(self, now: float) -> bool:
        """Whether each write has ended, with an outcome that is known or cannot change any more."""
        return not self._under_way and now >= self._unclear_until

    @contextmanager
    def one(self, until: float) -> Iterator[None]:
        """Enclose a write that takes effect before `until`, or never."""
        self._under_way += 1
        try:
            yield
        except BindingRefusedError:
            raise
        except BaseException:
            self._unclear_until = max(self._unclear_until, until)
            raise
        finally:
            self._under_way -= 1
