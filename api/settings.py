"""What the command lines of all processes share: how a wrong one is refused, and the flags of the log."""

import argparse
from typing import NoReturn, get_args

from mcp2026.api.errors import SettingsError
from mcp2026.api.structured_log import LogFormat, LogLevel


class SettingsParser(argparse.ArgumentParser):
    """A parser of flags that refuses what it cannot read as every other wrong setting is refused."""

    def error(self, message: str) -> NoReturn:
        """Raise `SettingsError` in place of argparse's own exit."""
        raise SettingsError("command line", message, f"see {self.prog} --help")


def add_log_flags(parser: argparse.ArgumentParser) -> None:
    """Add ``--log-format`` and ``--log-level``, with the defaults that all processes have."""
    parser.add_argument(
        "--log-format",
        choices=get_args(LogFormat),
        default="text",
        help="json for machines, text for a terminal [%(default)s]",
    )
    parser.add_argument(
        "--log-level", choices=get_args(LogLevel), default="INFO", help="least severe line [%(default)s]"
    )
