"""The command line: `python -m tools.cluster --help`."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from tools.cluster.bring_up import up as bring_up
from tools.cluster.cluster import Cluster
from tools.cluster.control_plane import ControlPlaneOptions
from tools.cluster.errors import ClusterError
from tools.cluster.go_programs import PROGRAMS, build
from tools.cluster.images import base_image, build_image, scheduler_image
from tools.cluster.levels import Level
from tools.cluster.node import load_image
from tools.cluster.processes import is_alive
from tools.cluster.progress import to_stderr
from tools.cluster.record import records
from tools.cluster.removal import sweep
from tools.cluster.requirements import how_to_get, missing_requirements, prepare

app = typer.Typer(
    name="python -m tools.cluster",
    help="A real Kubernetes on this machine, for tests and demonstrations.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
image_app = typer.Typer(help="Build images and load them into a cluster's node.", no_args_is_help=True)
app.add_typer(image_app, name="image")

Name = Annotated[str, typer.Option(help="The cluster's name.")]
AtLevel = Annotated[Level, typer.Option(help="How much of Kubernetes runs.")]


@app.command()
def up(
    level: AtLevel = Level.CONTROL_PLANE,
    name: Name = "dev",
    kwok_nodes: Annotated[int, typer.Option(min=0, help="Nodes that kwok plays (level kwok).")] = 5,
    kwok_resource: Annotated[
        list[str] | None, typer.Option(help="RESOURCE=AMOUNT that each played node offers; may be repeated.")
    ] = None,
    scheduler_config: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A KubeSchedulerConfiguration file.")
    ] = None,
) -> None:
    """Bring a cluster up; it stays until `down`."""
    started = time.monotonic()
    given = scheduler_config.read_text() if scheduler_config else None
    resources = dict(_pair(text, "--kwok-resource") for text in kwok_resource or [])
    cluster = bring_up(
        name,
        level,
        options=ControlPlaneOptions(scheduler_config=given),
        kwok_nodes=kwok_nodes,
        kwok_resources=resources,
    )
    to_stderr(f"{name} is up ({level}) at {cluster.api_url} after {time.monotonic() - started:.1f} s")
    to_stderr(f"logs: {cluster.logs_dir}")
    print(f"export KUBECONFIG={cluster.kubeconfig}")


@app.command()
def down(
    name: Name = "dev",
    every: Annotated[bool, typer.Option("--all", help="Take down every cluster of this user.")] = False,
) -> None:
    """Take a cluster down and remove all that it left on this machine."""
    names = [record.name for record in records()] if every else [name]
    for one in names:
        Cluster.named(one).down()
        to_stderr(f"{one} is down")


@app.command()
def status() -> None:
    """Tell which clusters there are, and which of their programs run."""
    found = list(records())
    if not found:
        print("no cluster is up")
    for record in found:
        print(f"{record.name}  level {record.level}  {record.api_url}  kubeconfig {record.folder}/kubeconfig")
        for program in record.programs:
            state = "running" if is_alive(program.identity) else "ENDED"
            print(f"  {program.program:26} pid {program.identity.pid:<8} {state}  log {program.log}")


@app.command()
def clean() -> None:
    """Remove the remains of runs that were killed; `up` does this, too."""
    sweep(to_stderr)


@app.command()
def kubeconfig(name: Name = "dev") -> None:
    """Print the path of a cluster's kubeconfig."""
    print(Cluster.named(name).kubeconfig)


@app.command("build")
def build_programs(
    programs: Annotated[
        list[str], typer.Argument(metavar="PROGRAM...", help="One of: " + ", ".join(PROGRAMS))
    ],
) -> None:
    """Build Go programs into the cache and print where they lie."""
    for program in programs:
        print(build(program))


@app.command("prepare")
def prepare_level(
    level: AtLevel = Level.CONTROL_PLANE,
    strict: Annotated[bool, typer.Option(help="Exit with 1 if the level cannot be had here.")] = False,
) -> None:
    """Install packages, build programs and images for a level; quick when all is there."""
    started = time.monotonic()
    if missing := prepare(level):
        to_stderr(f"level {level} is left out: {'; '.join(missing)}. To get it, {how_to_get(level)}")
        raise typer.Exit(1 if strict else 0)
    to_stderr(f"level {level} is ready to use ({time.monotonic() - started:.1f} s)")


@app.command()
def missing(level: AtLevel = Level.CONTROL_PLANE) -> None:
    """Tell what a level lacks here, without changing anything; exit with 1 if it lacks something."""
    found = missing_requirements(level)
    for requirement in found:
        print(requirement)
    raise typer.Exit(1 if found else 0)


@image_app.command("base")
def base() -> None:
    """Make the base image if the cache does not have it, and print its archive's path."""
    print(base_image())


@image_app.command("build")
def build_one(
    containerfile: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The Containerfile.")],
    tag: Annotated[str, typer.Option(help="The image's name, such as localhost/mcp2026:dev.")],
    context: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Default: the Containerfile's folder.")
    ] = None,
    build_arg: Annotated[list[str] | None, typer.Option(help="NAME=VALUE; may be repeated.")] = None,
    load: Annotated[str | None, typer.Option(metavar="CLUSTER", help="Load it into this cluster.")] = None,
) -> None:
    """Build an image from a Containerfile, and print its archive's path."""
    arguments = dict(_pair(text, "--build-arg") for text in build_arg or [])
    archive = build_image(containerfile, context or containerfile.parent, tag, arguments)
    if load is not None:
        load_image(Cluster.named(load), archive)
        to_stderr(f"{tag} is in the cluster {load}")
    print(archive)


@image_app.command("load")
def load_archive(
    archive: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A docker or OCI archive.")],
    name: Name = "dev",
) -> None:
    """Load an archive's images into a cluster's node."""
    load_image(Cluster.named(name), archive)
    to_stderr(f"{archive} is in the cluster {name}")


@image_app.command("scheduler")
def scheduler() -> None:
    """Make the image of kube-scheduler if the cache does not have it, and print its archive's path."""
    print(scheduler_image())


def _pair(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key or not value:
        raise typer.BadParameter(f"{text!r} should read NAME=VALUE", param_hint=option)
    return key, value


def main() -> None:
    """Run the command line; errors that tell what to do are printed without a trace."""
    try:
        app()
    except ClusterError as error:
        to_stderr(f"error: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
