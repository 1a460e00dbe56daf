"""`compare`, `report`, `plot`: servers side by side."""

import argparse
from pathlib import Path

from bench.client.closed_loop import check_client
from bench.commands.options import (
    Commands,
    add_conditions,
    conditions,
    default_output,
    duration,
    models_folder,
    names,
    numbers,
    positive,
)
from bench.comparison import Comparison, Plan
from bench.errors import BenchError
from bench.machine import this_machine, versions
from bench.peers.catalogue import NO_SERVER, PEERS, find_peer
from bench.protocols import PROTOCOLS
from bench.report import report
from bench.results import ResultFile, Settings, Start
from bench.samples import SHAPES, samples
from tools.cluster.progress import to_stderr

DEFAULT_SERVERS = (
    "mcp2026,bare,raw,raw-batched,triton,triton-delayed,pytriton,mlserver,mlserver-unbatched,kserve"
)


def add_commands(commands: Commands) -> None:
    """Add the commands."""
    compare = commands.add_parser(
        "compare",
        help="measure servers side by side",
        description="Measure servers side by side, round by round, and print medians and ratios. "
        "A run that was interrupted goes on when the same command is given again.",
    )
    compare.add_argument(
        "--models", type=names(SHAPES, "model"), default="mlp", help=f"of {', '.join(SHAPES)} (%(default)s)"
    )
    compare.add_argument(
        "--protocols",
        type=names(PROTOCOLS, "protocol"),
        default="json",
        help=f"of {', '.join(PROTOCOLS)} (%(default)s)",
    )
    compare.add_argument(
        "--servers",
        type=lambda text: text.split(","),
        default=DEFAULT_SERVERS,
        help=f"of {', '.join((*NO_SERVER, *PEERS))}, mcp2026@FOLDER (%(default)s)",
    )
    compare.add_argument(
        "--concurrency", type=numbers, default="1,8,32,64", help="requests on the way (%(default)s)"
    )
    compare.add_argument(
        "--rounds", type=positive, default=5, help="in each, every server once (%(default)s)"
    )
    compare.add_argument("--seconds", type=duration, default=3, help="of one measurement (%(default)s)")
    compare.add_argument(
        "--client", choices=("h2load", "python"), default="h2load", help="python: HTTP/1.1 alone, slower"
    )
    add_conditions(compare)
    _add_output(compare)
    compare.set_defaults(run=_compare)

    tables = commands.add_parser("report", help="print the tables of earlier measurements")
    _add_output(tables)
    tables.set_defaults(run=_report)

    plot = commands.add_parser("plot", help="draw earlier measurements as PNG (needs the extra 'bench')")
    _add_output(plot)
    plot.add_argument("--png", type=Path, default=Path("docs/benchmarks.png"), help="the file (%(default)s)")
    plot.set_defaults(run=_plot)


def _add_output(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--output", type=Path, default=default_output(), metavar="FOLDER", help="of the results (%(default)s)"
    )


def _compare(parsed: argparse.Namespace) -> int:
    check_client(parsed.client)
    peers = [find_peer(name) for name in parsed.servers if name not in NO_SERVER]
    plan = Plan(
        parsed.models, parsed.protocols, parsed.servers, parsed.concurrency, parsed.rounds, parsed.seconds
    )
    shared = conditions(parsed)
    results = ResultFile(parsed.output)
    results.begin(
        Settings(
            seconds=parsed.seconds,
            threads=shared.threads,
            max_batch_size=shared.max_batch_size,
            delay_ms=shared.delay_ms,
            server_cores=shared.server_cores.which,
            client_cores=shared.client_cores.which,
            niceness=parsed.niceness,
            realtime=parsed.realtime,
            client=parsed.client,
        ),
        Start(this_machine(), versions(peers)),
    )
    to_stderr(f"results go to {parsed.output}")
    made = samples(parsed.models, models_folder())
    Comparison(plan, shared, made, results, parsed.client, to_stderr).run()
    print(report(results))
    return 0


def _results(folder: Path) -> ResultFile:
    results = ResultFile(folder)
    if not results.measurements:
        raise BenchError(f"no measurements in {folder}: python -m bench compare --output {folder}")
    return results


def _report(parsed: argparse.Namespace) -> int:
    print(report(_results(parsed.output)))
    return 0


def _plot(parsed: argparse.Namespace) -> int:
    from bench.plot import draw

    draw(_results(parsed.output), parsed.png)
    print(parsed.png)
    return 0
