"""`mcp2026`: the command line for people."""

import importlib.metadata
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from mcp2026.api.names import REST_PORT
from mcp2026.cli.errors import CommandError
from mcp2026.topology.errors import TopologyError

app = typer.Typer(
    help="MCP 2026: inference on this machine and in a cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

_MODELS = Path("models")
TopologyOutput = Literal["text", "json", "yaml", "svg", "png"]


@app.command()
def local(
    file: Annotated[Path, typer.Option("--file", "-f", help="An InferenceModel in YAML.")],
    volume: Annotated[
        list[str] | None,
        typer.Option(help="CLAIM=DIR: the folder that stands in for a claim. Default: models=./models"),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65_000,
            help="First of the ports: HTTP of each replica, then gRPC of each. 0: free ones.",
        ),
    ] = REST_PORT,
    timeout: Annotated[
        int, typer.Option(min=1, max=86_400, help="Seconds until the model must be ready.")
    ] = 120,
    check: Annotated[
        bool, typer.Option("--check", help="Compare one answer with ONNX Runtime alone, then stop.")
    ] = False,
) -> None:
    """Serve an InferenceModel, or run its data set, on this machine: processes instead of pods."""
    from mcp2026.cli.local_command import serve_locally

    serve_locally(file, _claims(volume or []), port, timeout, check=check)


@app.command()
def convert(
    models: Annotated[
        list[Path], typer.Argument(help="ONNX files, folders with a model.onnx, or repositories of models.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write. Default: beside the model, .mcpir")
    ] = None,
    weights: Annotated[
        Literal["shared", "private"],
        typer.Option(help="On a CPU, share one copy in memory, or pack one for each process: faster."),
    ] = "shared",
    optimize: Annotated[
        bool | None,
        typer.Option(
            "--optimize/--no-optimize", help="Fold constants now. Default: unless weights exceed 1 GiB"
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Run both on random input and compare.")
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    describe: Annotated[
        bool, typer.Option("--describe", help="Only print the manifest of converted models.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="With --describe: read the weights, compare their digests.")
    ] = False,
) -> None:
    """Convert ONNX models into the format whose weights processes share."""
    from mcp2026.cli import convert as conversion

    if check and not describe:
        raise CommandError("--check goes with --describe only")
    if describe:
        for model in models:
            typer.echo(conversion.describe(model, check=check))
        return
    conversion.convert(models, output, conversion.Wishes(weights, optimize, verify, force))


@app.command()
def topology(
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            help="A machine in YAML or JSON: what kubectl get gputopology NODE -o yaml prints, or the format "
            "of tests/topologies.",
        ),
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="A node whose GPUTopology is read from the cluster of the kubeconfig.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="With --node: the kubeconfig's context. Default: the current one.")
    ] = None,
    output: Annotated[
        TopologyOutput,
        typer.Option("--output", "-o", help="Table, data, or a picture (png needs the extra 'bench')."),
    ] = "text",
    score: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Instead: which N GPUs are best, and why (text, json or yaml)."
        ),
    ] = None,
    free: Annotated[
        str | None,
        typer.Option(
            metavar="GPUS",
            help="With --score: the free ones, by index: 0,1,4. Default: those that are not unhealthy and "
            "that nobody holds.",
        ),
    ] = None,
    must: Annotated[
        str | None, typer.Option(metavar="GPUS", help="With --score: these are among the chosen ones.")
    ] = None,
    mix: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE=PERCENT,…",
            help="With --score: how many GPUs later requests ask for. Default: 1=40,2=30,4=20,8=10",
        ),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            help="What --score -o json has printed: asks again, and fails if the answer is another one."
        ),
    ] = None,
) -> None:
    """Show how a machine's GPUs are linked, how they are and who holds them, or which of them are best.

    The table has each GPU with its PCIe bus id, NVLink peers by bandwidth, and latencies.
    """
    from mcp2026.cli.topology_command import ScoreWishes, show_topology

    show_topology(file, node, context, output, ScoreWishes(score, free, must, mix), replay)


@app.command()
def explain(
    pod: Annotated[str, typer.Argument(help="The pod: pod/NAME, or NAME.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="The pod's namespace.")] = "default",
    extender: Annotated[
        str | None,
        typer.Option(help="http://HOST:PORT of the extender. Default: found by the kubeconfig."),
    ] = None,
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o")] = "text",
) -> None:
    """Tell why the scheduler put a pod where it is, or why it waits: nodes, scores, and what decided."""
    from mcp2026.cli.explain_command import explain as decided

    typer.echo(decided(pod, namespace, extender, as_json=output == "json"))


@app.command("what-if")
def what_if(
    file: Annotated[list[Path], typer.Option("--file", "-f", help="Pods, or what makes pods, in YAML.")],
    snapshot: Annotated[
        Path | None,
        typer.Option(
            help="What `kubectl get nodes,pods,gputopologies,pdb -A -o json` wrote. Default: the cluster."
        ),
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write the cluster as it is to this file.")] = None,
    add_node: Annotated[
        list[str] | None, typer.Option(help="NAME=FILE: as if there were this idle machine too.")
    ] = None,
    mig_layout: Annotated[
        list[str] | None, typer.Option(help="NODE:INDEX=PROFILE,…: as if this idle GPU were cut so.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="The scheduler's policy, in the form of the extender's --config. Default: its own."
        ),
    ] = None,
    why: Annotated[bool, typer.Option("--why", help="Explain each decision.")] = False,
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o")] = "text",
) -> None:
    """Tell where pods would go, by the scheduler's own code, in the cluster as it is or as it might be."""
    from mcp2026.cli.what_if_command import what_if as place

    as_json = output == "json"
    nodes, layouts = add_node or [], mig_layout or []
    typer.echo(place(file, snapshot, save, nodes, layouts, config, why=why, as_json=as_json))


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(importlib.metadata.version("mcp2026"))


def _claims(volumes: list[str]) -> dict[str, Path]:
    claims = {"models": _MODELS.absolute()}
    for volume in volumes:
        claim, separator, folder = volume.partition("=")
        if not (claim and separator and folder):
            raise CommandError(f"--volume {volume}: allowed: CLAIM=DIR")
        if not Path(folder).is_dir():
            raise CommandError(f"--volume {volume}: {folder} is no folder")
        claims[claim] = Path(folder).absolute()
    return claims


def main() -> None:
    """Run a command; an error is one sentence on standard error and exit code 1."""
    try:
        app()
    except (CommandError, TopologyError) as error:
        typer.echo(f"mcp2026: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
