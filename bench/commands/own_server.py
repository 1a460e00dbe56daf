"""The commands that hold MCP 2026 to what it promises by itself: `latency`, `soak`, `tenants` and others."""

import argparse
from pathlib import Path
from statistics import median

from bench.client.closed_loop import ClientName, check_client
from bench.commands.options import (
    Commands,
    add_conditions,
    conditions,
    default_output,
    duration,
    models_folder,
    names,
    positive,
)
from bench.negotiation import negotiation
from bench.own_server import HalfLoad, Setting, half_load, idle, soak, tenants
from bench.peers.peer import ROOT
from bench.samples import SHAPES, samples
from bench.swaps import Plan, Swaps, hot_swaps
from bench.validation import validation
from tools.cluster.progress import to_stderr

SOAK_BAR = 0.95
"""Least throughput of the last minute as a part of that of the first."""

SWAPS_BAR = 1.5
"""Most times that p99 may be with swaps what it is without."""

VALIDATION_BAR = 0.05
"""Most that the check of the contract may take of a small request."""

LATENCY_COLUMNS = (
    "server",
    "capacity/s",
    "answers/s",
    "p50 ms",
    "p99 ms",
    "p99 over the last server's, ms",
    "client late p99 ms",
    "client stood still",
    "execution ms",
    "errors",
)


def add_commands(commands: Commands) -> None:
    """Add the commands."""
    latency = _command(
        commands, "latency", "latency at half of the capacity, requests at random times", "mlp"
    )
    latency.add_argument(
        "--servers",
        type=lambda text: text.split(","),
        default="mcp2026,bare",
        help="all at half of the capacity of the first; p99 is also given over the last one's (%(default)s)",
    )
    latency.add_argument("--rounds", type=positive, default=3, help="loads of each server (%(default)s)")
    latency.add_argument("--seconds", type=duration, default=4, help="of each load (%(default)s)")
    latency.add_argument("--connections", type=positive, default=64, help="of the client (%(default)s)")
    latency.add_argument("--client", choices=("h2load", "python"), default="h2load", help="for the capacity")
    latency.set_defaults(run=_latency)

    endurance = _command(
        commands, "soak", "throughput at the end of a long load in which requests expire", "mlp"
    )
    endurance.add_argument("--server", default="mcp2026", help="one that `list` names (%(default)s)")
    endurance.add_argument("--minutes", type=float, default=3.0, help="of the load (%(default)s)")
    endurance.set_defaults(run=_soak)

    shares = _command(
        commands, "tenants", "shares of two tenants of weight 3 and 1, and latency under a flood", "slow"
    )
    shares.add_argument("--checkout", type=Path, default=ROOT, help="of MCP 2026 (this one)")
    shares.add_argument("--seconds", type=duration, default=10, help="of each load (%(default)s)")
    shares.set_defaults(run=_tenants)

    idling = _command(commands, "idle", "processor time of a server without requests", "mlp")
    idling.add_argument("--server", default="mcp2026", help="one that `list` names (%(default)s)")
    idling.add_argument("--seconds", type=duration, default=10, help="of each round (%(default)s)")
    idling.add_argument("--rounds", type=positive, default=1, help="the median counts (%(default)s)")
    idling.set_defaults(run=_idle)

    checking = _command(commands, "validation", "what the check of the contract takes of a request", "mlp")
    checking.add_argument("--seconds", type=duration, default=5, help="of the load (%(default)s)")
    checking.add_argument("--rounds", type=positive, default=50, help="of reading alone (%(default)s)")
    checking.set_defaults(run=_validation)

    offering = _command(commands, "negotiation", "requests with and without an offer to batch", "mlp")
    offering.add_argument("--offer", default="1; max-delay-ms=5; min-size=8", help="(%(default)s)")
    offering.add_argument("--seconds", type=duration, default=2, help="of each load (%(default)s)")
    offering.add_argument("--rounds", type=positive, default=5, help="the medians count (%(default)s)")
    offering.add_argument("--connections", type=positive, default=64, help="of the client (%(default)s)")
    offering.set_defaults(run=_negotiation)

    text = "hot swaps of versions under load"
    swapping = commands.add_parser("swaps", help=text, description=text.capitalize())
    swapping.add_argument(
        "--models", type=names(SHAPES, "model"), default="mlp,slow", help="one after another (%(default)s)"
    )
    add_conditions(swapping)
    swapping.add_argument("--swaps", type=positive, default=100, help="of each model (%(default)s)")
    swapping.add_argument(
        "--window",
        type=positive,
        default=5,
        metavar="SWAPS",
        help="swaps in a row, before as long a time without (%(default)s)",
    )
    swapping.add_argument(
        "--every",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="from swap to swap, more if one takes longer; 0: as fast as they settle (%(default)s)",
    )
    swapping.add_argument("--connections", type=positive, default=16, help="of the client (%(default)s)")
    swapping.set_defaults(run=_swaps)


def _command(commands: Commands, name: str, text: str, model: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text.capitalize())
    command.add_argument("--model", choices=sorted(SHAPES), default=model, help="(%(default)s)")
    add_conditions(command)
    return command


def _setting(parsed: argparse.Namespace, model: str | None = None) -> Setting:
    """Return the setting for `model`, or for the one that the command line names."""
    client: ClientName = getattr(parsed, "client", "python")
    check_client(client)
    name = parsed.model if model is None else model
    sample = samples([name], models_folder())[name]
    return Setting(sample, conditions(parsed), client, default_output() / "logs")


def _latency(parsed: argparse.Namespace) -> int:
    setting = _setting(parsed)
    found: dict[str, list[HalfLoad]] = {}
    for server, result in half_load(
        setting, parsed.servers, parsed.seconds, parsed.connections, parsed.rounds
    ):
        found.setdefault(server, []).append(result)
        to_stderr(
            f"{server}: capacity {result.capacity:,.0f}/s, at {result.rate:,.0f}/s "
            f"p50 {result.p50_ms:.2f} ms, p99 {result.p99_ms:.2f} ms, "
            f"client late {result.lag_p99_ms:.2f} ms, {result.errors} errors"
        )
    print("| " + " | ".join(LATENCY_COLUMNS) + " |")
    print("|" + "---|" * len(LATENCY_COLUMNS))
    last = found[parsed.servers[-1]]
    for server, results in found.items():
        over = [one.p99_ms - other.p99_ms for one, other in zip(results, last, strict=True)]
        values = [
            server,
            f"{median(result.capacity for result in results):,.0f}",
            f"{median(result.rate for result in results):,.0f}",
            f"{median(result.p50_ms for result in results):.2f}",
            f"{median(result.p99_ms for result in results):.2f}",
            f"{median(over):.2f}",
            f"{median(result.lag_p99_ms for result in results):.2f}",
            f"{median(result.stood_still for result in results):.1%}",
            f"{results[0].execution_ms:.3f}",
            str(sum(result.errors for result in results)),
        ]
        print(f"| {' | '.join(values)} |")
    return 0


def _soak(parsed: argparse.Namespace) -> int:
    setting = _setting(parsed)
    seconds = max(2, round(parsed.minutes * 60))
    to_stderr(f"loading {parsed.server} for {seconds} s …")
    result = soak(setting, parsed.server, seconds)
    rates = ", ".join(f"{rate:,.0f}" for rate in result.rates)
    print(f"answers/s in windows of {result.window_s} s: {rates}")
    print(f"statuses: {result.statuses}")
    print(f"memory: {result.memory_mib[0]:.0f} MiB before, {result.memory_mib[1]:.0f} MiB after")
    print(f"last window to first: {result.last_to_first:.3f} (at least {SOAK_BAR})")
    cores = ", ".join(f"{part:.2f}" for part in result.cpu)
    print(f"the same by processor time: {result.last_to_first_per_cpu:.3f}; it had {cores} of a core")
    return 0 if result.last_to_first >= SOAK_BAR else 1


def _tenants(parsed: argparse.Namespace) -> int:
    result = tenants(_setting(parsed), parsed.checkout, parsed.seconds)
    print(f"answers in {parsed.seconds:g} s: {result.answers}, weights 3:1, ratio {result.ratio:.2f}")
    for name, stream in (
        ("gold alone", result.alone),
        ("gold while silver floods", result.flooded),
        ("gold with priority 1 while silver floods", result.flooded_with_priority),
    ):
        print(f"{name}: p50 {stream.p50_ms:.1f} ms, p99 {stream.p99_ms:.1f} ms, {stream.errors} errors")
    return 0


def _idle(parsed: argparse.Namespace) -> int:
    used = idle(_setting(parsed), parsed.server, parsed.seconds, parsed.rounds)
    print(f"{parsed.server} without requests uses {used * 1000:.1f} ms of one core a second")
    return 0


def _validation(parsed: argparse.Namespace) -> int:
    cost = validation(_setting(parsed), parsed.seconds, parsed.rounds)
    print(f"reading a body: {cost.checked_us:.2f} µs with the check, {cost.unchecked_us:.2f} µs without")
    print(f"the general validator on the same body: {cost.general_us:.2f} µs more")
    print(f"a request: {cost.request_us:.1f} µs of processor time of the server")
    print(f"the check takes {cost.share:.2%} of it (at most {VALIDATION_BAR:.0%})")
    return 0 if cost.share <= VALIDATION_BAR else 1


def _swaps(parsed: argparse.Namespace) -> int:
    plan = Plan(parsed.swaps, parsed.window, parsed.every, parsed.connections)
    results = {}
    for model in parsed.models:
        to_stderr(f"{model}:")
        results[model] = hot_swaps(_setting(parsed, model), plan, to_stderr)
        print(f"{model}: {_told(results[model])}")
    kept = all(
        result.errors == 0 and result.wrong_version == 0 and result.p99_ratio <= SWAPS_BAR
        for result in results.values()
    )
    return 0 if kept else 1


def _told(result: Swaps) -> str:
    quiet, swapping = (result.medians(swapping=kind) for kind in (False, True))
    pairs = sorted(result.pairs)
    return (
        f"{result.swaps} swaps, one every {result.seconds_per_swap:.2f} s; from file to live "
        f"{result.settled_ms:.0f} ms in the median\n"
        f"  {result.answers} answers: {result.errors} errors, {result.wrong_version} of a version that was "
        f"not live while the request was on the way\n"
        f"  answers/s: {quiet.rate:,.0f} without swaps, {swapping.rate:,.0f} with\n"
        f"  p50: {quiet.p50_ms:.2f} ms without swaps, {swapping.p50_ms:.2f} ms with\n"
        f"  p99: {quiet.p99_ms:.2f} ms without swaps, {swapping.p99_ms:.2f} ms with: "
        f"{result.p99_ratio:.2f} times (at most {SWAPS_BAR}); "
        f"pairs of windows: {pairs[0]:.2f} to {pairs[-1]:.2f}"
    )


def _negotiation(parsed: argparse.Namespace) -> int:
    result = negotiation(_setting(parsed), parsed.offer, parsed.seconds, parsed.rounds, parsed.connections)
    print(f"without an offer: {result.plain_rate:,.0f} answers/s, p50 {result.plain_p50_ms:.2f} ms")
    print(f"with {parsed.offer!r}: {result.negotiated_rate:,.0f}, p50 {result.negotiated_p50_ms:.2f} ms")
    print(f"ratio: {result.ratio:.2f}; {result.errors} errors")
    return 0 if result.errors == 0 else 1
