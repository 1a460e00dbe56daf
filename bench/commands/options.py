"""Options that several commands share."""

import argparse
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from bench.cores import Cores
from bench.serving import Conditions
from tools.cluster.cache import cache_folder

Commands = Any
"""What `add_subparsers` returns; its type is private to argparse."""


def names(known: Collection[str], what: str) -> Callable[[str], list[str]]:
    """Return a parser of a list of names separated by commas."""

    def parse(text: str) -> list[str]:
        chosen = [name.strip() for name in text.split(",") if name.strip()]
        unknown = [name for name in chosen if name not in known]
        if unknown or not chosen:
            raise argparse.ArgumentTypeError(f"no {what} {', '.join(unknown)}; known: {', '.join(known)}")
        return chosen

    return parse


def positive(text: str) -> int:
    """Parse a whole number above 0."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not above 0")
    return value


def duration(text: str) -> float:
    """Parse a number of seconds above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def numbers(text: str) -> list[int]:
    """Parse whole numbers above 0 separated by commas."""
    return [positive(word) for word in text.split(",")]


def add_conditions(command: argparse.ArgumentParser) -> None:
    """Add what says where servers and client run, and how."""
    cores = sorted(os.sched_getaffinity(0))
    command.add_argument(
        "--server-cores",
        default=str(cores[0]),
        metavar="CORES",
        help="as taskset -c takes them (%(default)s)",
    )
    command.add_argument(
        "--client-cores", default=str(cores[-1]), metavar="CORES", help="cores of the client (%(default)s)"
    )
    command.add_argument(
        "--niceness",
        type=int,
        default=0,
        choices=range(-20, 20),
        metavar="N",
        help="of servers and client; -12 keeps other work on this machine out, as root (%(default)s)",
    )
    command.add_argument(
        "--realtime",
        action="store_true",
        help="servers and client at real-time priority instead, as root: only the kernel interrupts them",
    )
    command.add_argument(
        "--threads", type=positive, default=1, help="compute threads of each server (%(default)s)"
    )
    command.add_argument(
        "--max-batch-size", type=positive, default=32, metavar="ROWS", help="largest batch (%(default)s)"
    )
    command.add_argument(
        "--delay-ms",
        type=int,
        default=5,
        metavar="MS",
        help="how long batching peers wait for a batch to fill (%(default)s)",
    )


def conditions(parsed: argparse.Namespace) -> Conditions:
    """Return where and how servers run."""
    return Conditions(
        Cores(parsed.server_cores, parsed.niceness, parsed.realtime),
        Cores(parsed.client_cores, parsed.niceness, parsed.realtime),
        parsed.threads,
        parsed.max_batch_size,
        parsed.delay_ms,
    )


def default_output() -> Path:
    """Return where results go unless told otherwise."""
    return cache_folder() / "bench" / "results"


def models_folder() -> Path:
    """Return where the models are kept between runs."""
    return cache_folder() / "bench" / "models"
