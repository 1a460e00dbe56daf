"""What a repository asks for and does not get, said once, with the field of its config.pbtxt."""

from collections.abc import Sequence
from dataclasses import dataclass

from mcp2026.runtime.errors import ModelLoadError


@dataclass(frozen=True, slots=True)
class Refusal:
    """One field that is not accepted."""

    field: str
    """As a path: `instance_group[0].kind`."""
    problem: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.field}: {self.problem} (supported: {self.allowed})"


class RepositoryError(ModelLoadError):
    """A model of a repository cannot be served as its files say."""

    def __init__(self, path: str, refusals: Sequence[Refusal]) -> None:
        super().__init__(path, "; ".join(map(str, refusals)), "Change the file, or serve it elsewhere")
        self.refusals = tuple(refusals)
