"""`mcp2026 topology`: reads a machine, then prints a table, data, a picture, or which GPUs are best."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import typer
import yaml

from mcp2026.api.yaml_errors import NOT_YAML
from mcp2026.cli.errors import CommandError
from mcp2026.cli.topology_score import render_explanation
from mcp2026.cli.topology_table import render
from mcp2026.topology.bands import Circumstances
from mcp2026.topology.demand import DEFAULT_MIX, DemandMix
from mcp2026.topology.errors import DemandMixError
from mcp2026.topology.explanation import explain
from mcp2026.topology.machine import Description, Machine, description_from_file
from mcp2026.topology.snapshot import (
    PlacementSnapshot,
    score_document,
    snapshot_document,
    snapshot_from_document,
)

Output = Literal["text", "json", "yaml", "svg", "png"]


@dataclass(frozen=True, slots=True)
class ScoreWishes:
    """The flags of a placement question as given; `size` None: none is asked."""

    size: int | None = None
    free: str | None = None
    must: str | None = None
    mix: str | None = None


def show_topology(
    file: Path | None,
    node: str | None,
    context: str | None,
    output: Output,
    wishes: ScoreWishes,
    replay: Path | None,
) -> None:
    """Print what the flags ask for.

    Raises:
        CommandError: flags contradict each other, or one is wrong.
        TopologyError: the machine cannot be read, or has not so many GPUs.

    """
    sources = [name for name, value in (("--file", file), ("--node", node), ("--replay", replay)) if value]
    if len(sources) != 1:
        raise CommandError(
            f"{' and '.join(sources) or 'no source'}: allowed: one of --file, --node, --replay"
        )
    if context is not None and node is None:
        raise CommandError("--context goes with --node only")
    if wishes.size is None and (flag := _first_given(wishes)):
        raise CommandError(f"{flag} goes with --score only")
    if replay is not None:
        if wishes.size is not None:
            raise CommandError("--score: the file of --replay has the question; allowed: one of the two")
        _replay(replay, _data_format(output))
        return
    description = _description(file, node, context)
    if wishes.size is not None:
        _print_answer(_question(description, wishes), _data_format(output))
    elif output == "svg" or output == "png":
        _print_picture(description, output)
    else:
        typer.echo(render(description, output))


def _first_given(wishes: ScoreWishes) -> str | None:
    given = (("--free", wishes.free), ("--must", wishes.must), ("--mix", wishes.mix))
    return next((flag for flag, value in given if value is not None), None)


def _data_format(output: Output) -> Literal["text", "json", "yaml"]:
    if output == "svg" or output == "png":
        raise CommandError(f"--output {output}: allowed with --score and --replay: text, json, yaml")
    return output


def _description(file: Path | None, node: str | None, context: str | None) -> Description:
    if file is not None:
        return description_from_file(file)
    from mcp2026.cli.topology_cluster import description_of_node

    assert node is not None
    return description_of_node(node, context)


def _print_picture(description: Description, output: Literal["svg", "png"]) -> None:
    from mcp2026.cli.topology_drawing import png, svg
    from mcp2026.cli.topology_picture import picture

    drawn = picture(description)
    if output == "svg":
        typer.echo(svg(drawn))
        return
    if sys.stdout.isatty():
        raise CommandError(
            "--output png: not to a terminal; write it to a file: mcp2026 topology … -o png > t.png"
        )
    sys.stdout.buffer.write(png(drawn))


def _question(description: Description, wishes: ScoreWishes) -> PlacementSnapshot:
    machine = description.machine
    free = _positions(machine, "--free", wishes.free) if wishes.free is not None else free_gpus(description)
    must = _positions(machine, "--must", wishes.must) if wishes.must is not None else ()
    assert wishes.size is not None
    return PlacementSnapshot(
        machine, free, wishes.size, must, Circumstances(mix=_mix(wishes.mix) if wishes.mix else DEFAULT_MIX)
    )


def free_gpus(description: Description) -> tuple[int, ...]:
    """Return the positions of GPUs that can be given away whole, as far as the description tells."""
    statuses = description.topology.status.gpus if description.topology else None
    return tuple(
        place
        for place, gpu in enumerate(description.machine.gpus)
        if gpu.healthy
        and (
            statuses is None
            or (
                statuses[place].held_by is None
                and not statuses[place].allocations
                and statuses[place].sharing.mode == "Exclusive"
            )
        )
    )


def _positions(machine: Machine, flag: str, text: str) -> tuple[int, ...]:
    positions = {str(gpu.index): place for place, gpu in enumerate(machine.gpus)}
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in positions:
            raise CommandError(f"{flag} {text}: no GPU {word}; allowed: {', '.join(positions)}")
    return tuple(sorted({positions[word] for word in words}))


def _mix(text: str) -> DemandMix:
    percent: dict[int, int] = {}
    for part in text.split(","):
        size, separator, share = part.partition("=")
        if not (separator and size.strip().isdecimal() and share.strip().isdecimal()):
            raise CommandError(f"--mix {text}: {part!r}; allowed: SIZE=PERCENT, such as 1=40,2=30,4=20,8=10")
        percent[int(size)] = int(share)
    try:
        return DemandMix.of(percent)
    except DemandMixError as error:
        raise CommandError(f"--mix {text}: {error}") from error


def _print_answer(snapshot: PlacementSnapshot, output: Literal["text", "json", "yaml"]) -> None:
    if output == "text":
        typer.echo(render_explanation(snapshot, explain(snapshot)))
        return
    document = {"question": snapshot_document(snapshot), "answer": _answer(snapshot)}
    if output == "json":
        typer.echo(json.dumps(document, indent=2))
    else:
        typer.echo(yaml.safe_dump(document, sort_keys=False).rstrip())


def _answer(snapshot: PlacementSnapshot) -> dict[str, Any]:
    choice = snapshot.answer()
    return {
        "gpus": snapshot.indices(choice.gpus),
        "exact": choice.exact,
        "terms": score_document(choice.score),
    }


def _replay(path: Path, output: Literal["text", "json", "yaml"]) -> None:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"--replay {path}: cannot be read: {error.strerror}") from error
    except NOT_YAML as error:
        raise CommandError(f"--replay {path}: neither JSON nor YAML: {error}") from error
    if not isinstance(document, dict) or "question" not in document:
        raise CommandError(f"--replay {path}: question: missing; allowed: what --score -o json prints")
    snapshot = snapshot_from_document(f"{path}: question", document["question"])
    _print_answer(snapshot, output)
    recorded = document.get("answer")
    if recorded is not None and recorded != _answer(snapshot):
        was = recorded.get("gpus") if isinstance(recorded, dict) else recorded
        raise CommandError(
            f"--replay {path}: answer: {was} with its terms was recorded, now it is "
            f"{snapshot.indices(snapshot.answer().gpus)}"
        )
