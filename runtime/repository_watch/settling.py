"""Which folders of a repository are to be taken now: those that changed, and have been quiet since. Pure.

A folder that is being copied changes at every look. One that is gone may be on its way back: two renames
replace a folder, and between them there is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mcp2026.runtime.model.file_state import FileState


@dataclass(frozen=True, slots=True)
class FolderState:
    """All files below one model's folder, as the file system describes them."""

    files: frozenset[FileState] = field(default_factory=frozenset)
    passing: frozenset[FileState] = field(default_factory=frozenset)
    """Files whose names begin with a dot: copies that are under way, or leftovers. No model is of them."""


@dataclass(slots=True)
class _Seen:
    state: FolderState | None
    since: float


class Settling:
    """Remembers what was seen of each folder, since when, and what was taken of it last."""

    def __init__(self, quiet_seconds: float) -> None:
        """Take a folder when it has not changed for so long."""
        self._quiet = quiet_seconds
        self._seen: dict[str, _Seen] = {}
        self._taken: dict[str, FolderState] = {}

    def look(self, found: Mapping[str, FolderState], now: float) -> list[str]:
        """Note what is there at `now`, in s of any clock, and return the names that are to be taken, sorted.

        A name that is not in `found` is to be unloaded.
        """
        for name in {*found, *self._seen}:
            state, seen = found.get(name), self._seen.get(name)
            if seen is None or seen.state != state:
                self._seen[name] = _Seen(state, now)
        return sorted(name for name in self._seen if self._changed(name) and self._quiet_since(name, now))

    def take(self, name: str) -> FolderState | None:
        """Take a folder as it was seen last, whatever becomes of it; None: it is gone."""
        state = self._seen[name].state
        if state is None:
            del self._seen[name]
            self._taken.pop(name, None)
        else:
            self._taken[name] = state
        return state

    def take_all(self, found: Mapping[str, FolderState], now: float) -> list[str]:
        """Take all folders at once, quiet or not, and return their names, sorted: for the start."""
        self.look(found, now)
        self._taken |= found
        return sorted(found)

    def next_look(self, now: float) -> float | None:
        """Return after how many s some folder may have been quiet for long enough; None: nothing changes."""
        waiting = [seen.since + self._quiet - now for name, seen in self._seen.items() if self._changed(name)]
        return max(0.0, min(waiting)) if waiting else None

    def _changed(self, name: str) -> bool:
        state, taken = self._seen[name].state, self._taken.get(name)
        if state is None or taken is None:
            return state is not taken
        return state.files != taken.files

    def _quiet_since(self, name: str, now: float) -> bool:
        return now - self._seen[name].since >= self._quiet
