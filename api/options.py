"""One thing that a process can be told: by a flag, or by an environment variable of the same name."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcp2026.api.errors import SettingsError

ENVIRONMENT_PREFIX = "MCP2026_"


def boolean(text: str) -> bool:
    """Return whether `text` is a word for yes; raises KeyError if it is none for no either."""
    values = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    return values[text.lower()]


def names(text: str) -> tuple[str, ...]:
    """Return what stands between the commas of `text`."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


@dataclass(frozen=True)
class Option:
    """One flag: `--name`, the environment variable of the same name, its type, range and help."""

    name: str
    parse: Callable[[str], Any]
    kind: str
    help: str
    allowed: tuple[float, float] | tuple[str, ...] | None = None
    """A range, ends included, or all values that there are."""

    @property
    def is_switch(self) -> bool:
        """It is said by the flag alone, or by its --no- form."""
        return self.parse is boolean

    @property
    def flag(self) -> str:
        """As it is written on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable of the same meaning."""
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def metavar(self) -> str:
        """What stands for the value in --help: N for numbers, whose unit the help tells."""
        return "N" if self.parse in (int, float) else self.name.rsplit("_")[-1].upper()

    @property
    def described(self) -> str:
        """The help, with the range of a number."""
        if self.allowed is None or isinstance(self.allowed[0], str):
            return self.help
        return f"{self.help}, {self.allowed[0]} to {self.allowed[1]}"

    def read(self, text: str, source: str) -> Any:
        """Return the value of `text`; `source` is the flag or variable that an error names.

        Raises:
            SettingsError: the value is not accepted.

        """
        try:
            value = self.parse(text)
        except (ValueError, KeyError):
            raise SettingsError(source, f"{text!r} is not {self.kind}", self._allowed_text()) from None
        if self.allowed is None:
            return value
        if isinstance(self.allowed[0], str):
            if value not in self.allowed:
                raise SettingsError(source, f"{text!r} is not known", self._allowed_text())
            return value
        low, high = self.allowed
        if not (math.isfinite(value) and low <= value <= high):
            raise SettingsError(source, f"{text} is out of range", self._allowed_text())
        return value

    def _allowed_text(self) -> str:
        if self.allowed is None:
            return self.kind
        if isinstance(self.allowed[0], str):
            return ", ".join(str(choice) for choice in self.allowed)
        return f"{self.kind} from {self.allowed[0]} to {self.allowed[1]}"
