"""`simulate`: placement policies on the same pods, and static GPUs against MIG, both in simulation."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.commands.options import Commands, positive
from bench.errors import BenchError
from bench.simulation.comparison import compare_on_trace, compare_policies, shipped_scenarios
from bench.simulation.report import (
    MIG_NOTE,
    PLACEMENT_NOTE,
    mig_data,
    mig_table,
    placement_data,
    placement_tables,
    sensitivity_data,
    sensitivity_table,
)
from bench.simulation.static_and_mig import headline, headline_fleet, mixed, sensitivity
from bench.simulation.traces import read_csv, read_description

PARTS = ("placement", "mig")


def add_commands(commands: Commands) -> None:
    """Add the command."""
    simulate = commands.add_parser(
        "simulate",
        help="placement policies, and static GPUs against MIG, in simulation",
        description="Simulate pods that come and go under our placement (the product's code) and others, "
        "and requests on static GPUs and on MIG slices. No GPU is measured; docs/simulation.md says what is "
        "assumed.",
    )
    simulate.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (both)")
    simulate.add_argument(
        "--scenario",
        type=Path,
        action="append",
        metavar="YAML",
        help=f"cluster and pods ({', '.join(path.stem for path in shipped_scenarios())} of bench/simulation)",
    )
    simulate.add_argument(
        "--trace", type=Path, metavar="CSV", help="pods of your own, on the machines of one --scenario"
    )
    simulate.add_argument("--seeds", type=positive, default=5, help="how many (%(default)s)")
    simulate.add_argument("--seconds", type=positive, default=200, help="of requests, for MIG (%(default)s)")
    simulate.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    simulate.set_defaults(run=_simulate)


def _simulate(parsed: argparse.Namespace) -> int:
    parts = parsed.parts or PARTS
    if unknown := [part for part in parts if part not in PARTS]:
        raise BenchError(f"PART: {unknown[0]}; allowed: {', '.join(PARTS)}")
    if parsed.trace and len(parsed.scenario or ()) != 1:
        raise BenchError("--trace: needs the machines of one --scenario")
    data: dict[str, Any] = {"simulated": True, "seeds": parsed.seeds}
    if "placement" in parts:
        data["placement"] = dict(_placement(parsed))
    if "mig" in parts:
        data["mig"] = _mig(parsed.seeds, parsed.seconds)
    if parsed.json:
        try:
            parsed.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise BenchError(f"--json: {parsed.json}: {error.strerror}") from error
    return 0


def _placement(parsed: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    print(PLACEMENT_NOTE)
    for path in parsed.scenario or shipped_scenarios():
        described = read_description(path)
        if parsed.trace:
            found = compare_on_trace(described, read_csv(parsed.trace))
        else:
            found = compare_policies(described, range(1, parsed.seeds + 1))
        _print(path.stem, placement_tables(found))
        yield path.stem, placement_data(found)


def _mig(seeds: int, seconds: int) -> dict[str, Any]:
    print(f"\n{MIG_NOTE}")
    numbers = range(1, seeds + 1)
    one_gpu = [headline(seconds, seed) for seed in numbers]
    _print("one GPU, seven models (the headline)", mig_table(one_gpu))
    fleet = [headline_fleet(seconds, seed) for seed in numbers]
    _print("four GPUs, 32 of the headline's models in random order", mig_table(fleet))
    four_gpus = [mixed(seconds, seed) for seed in numbers]
    _print("four GPUs, models of three sizes", mig_table(four_gpus))
    ratios = sensitivity(seconds, seed=1)
    _print("P99 of seven slices over P99 of static thirds", sensitivity_table(ratios))
    return {
        "headline": mig_data(one_gpu),
        "headline_fleet": mig_data(fleet),
        "mixed": mig_data(four_gpus),
        "sensitivity": sensitivity_data(ratios),
    }


def _print(title: str, lines: list[str]) -> None:
    print(f"\n{title}", *lines, sep="\n")
