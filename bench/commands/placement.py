"""`placement`: the time that choosing GPUs takes, beside trying all sets."""

import argparse

from bench.commands.options import Commands, positive
from bench.placement import COLUMNS, placement


def add_commands(commands: Commands) -> None:
    """Add the command."""
    choice = commands.add_parser(
        "placement",
        help="the time to choose k of n GPUs, beside trying all sets",
        description="Time the choice of 1, 2, 4 and 8 GPUs on known machines, beside trying all sets; "
        "medians. Ends with 1 if an answer is not the best.",
    )
    choice.add_argument("--rounds", type=positive, default=5, help="of each question (%(default)s)")
    choice.set_defaults(run=_placement)


def _placement(parsed: argparse.Namespace) -> int:
    for row in (COLUMNS, ("---",) * len(COLUMNS), *(times.row for times in placement(parsed.rounds))):
        print("|", " | ".join(row), "|")
    return 0
