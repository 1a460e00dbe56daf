"""`mcp2026 local`: the operator's own decisions, carried out on this machine."""

import signal
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer

from mcp2026.api.conditions import ConditionType, Reason
from mcp2026.cli.accelerators import gpu_environment
from mcp2026.cli.batch_command import run_locally
from mcp2026.cli.errors import CommandError, ServerDiedError
from mcp2026.cli.inference_check import TOLERANCE, check_inference
from mcp2026.cli.local_cluster import LocalCluster, free_ports, require_free
from mcp2026.cli.model_file import read_model
from mcp2026.cli.pod_process import local_config, mounts
from mcp2026.cli.printer_columns import model_table
from mcp2026.operator.observed import condition_of
from mcp2026.operator.reconcile import reconcile
from mcp2026.operator.settings import PodSettings

_POLL_SECONDS = 0.1
_LOCAL_PODS = PodSettings(runtime_image="this-machine", lame_duck_seconds=0)
"""No endpoints have to be withdrawn here, so there is no lame-duck time."""


def serve_locally(file: Path, claims: Mapping[str, Path], port: int, timeout: int, *, check: bool) -> None:
    """Serve the model in `file` until Ctrl-C, or with `check` only as long as one checked inference takes.

    Raises:
        CommandError: it cannot be served, or its answer is wrong.

    """
    known = _content(file)  # what is written from here on is a change
    resource, model = read_model(file)
    if model.spec.depends_on:
        raise CommandError(
            f"{model.name} waits for {', '.join(model.spec.depends_on)}; one model alone is served locally"
        )
    if model.spec.mode == "Batch":
        if check:
            raise CommandError("--check asks a server, and mode Batch has none")
        say(f"{model.name}: {run_locally(model, claims, _LOCAL_PODS)}")
        return
    if model.spec.stopped:
        raise CommandError("spec.stopped is true: nothing would be served")
    if model.spec.replicas == 0:
        raise CommandError("spec.replicas is 0: nothing would be served")
    first_port = port or free_ports(2 * model.spec.replicas)
    require_free(first_port)
    gpu, where = gpu_environment(model.spec.gpu.count)
    say(f"{model.name}: {model.versions_column} from {file}")
    say(where)
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, _interrupt)  # a shell starts what runs in its background with SIGINT ignored
    with tempfile.TemporaryDirectory(prefix="mcp2026-local-") as folder:
        cluster = LocalCluster(resource, Path(folder), claims, first_port)
        cluster.environment = {**cluster.environment, **gpu}
        try:
            bring_up(cluster, timeout)
            typer.echo(model_table(cluster.resource, datetime.now(UTC)))
            if check:
                _check(cluster)
            else:
                _stay(cluster, file, known)
        except KeyboardInterrupt:
            if check:
                raise CommandError("interrupted") from None
        finally:
            cluster.end()
    say("stopped")


def bring_up(cluster: LocalCluster, timeout: int) -> None:
    """Reconcile until the model is ready.

    Raises:
        CommandError: it is blocked, or is not ready in time.

    """
    started = time.monotonic()
    while True:
        step(cluster)
        ready = condition_of(cluster.resource, ConditionType.READY)
        if ready.get("status") == "True":
            say(f"ready after {time.monotonic() - started:.1f} s: {', '.join(cluster.urls)}")
            return
        blocked = condition_of(cluster.resource, ConditionType.ROLLOUT_BLOCKED)
        if blocked.get("status") == "True":
            raise ServerDiedError(f"{blocked['reason']}: {blocked['message']}")
        if time.monotonic() - started > timeout:
            tails = "\n".join(process.log_tail() for process in cluster.processes)
            raise CommandError(f"not ready after {timeout} s: {ready.get('message')}\n{tails}")
        time.sleep(_POLL_SECONDS)


def step(cluster: LocalCluster) -> None:
    """Reconcile once."""
    for action in reconcile(cluster.observe(), datetime.now(UTC), _LOCAL_PODS):
        line = cluster.carry_out(action)
        if line and not line.startswith(Reason.CONTAINER_FAILING):  # that one is the error that ends us
            say(line)


def _check(cluster: LocalCluster) -> None:
    where = mounts(cluster.children["Deployment"], cluster.folder, cluster.claims)
    config = local_config(cluster.children["ConfigMap"], where)
    for process in cluster.processes:
        for version in config.versions:
            found = check_inference(process.port, version)
            said = (
                f"POST /v1/infer on port {process.port}, {version.version_id}: input "
                f"{list(found.input_shape)}, output {', '.join(str(list(s)) for s in found.output_shapes)}; "
                f"max difference from ONNX Runtime alone {found.max_difference:.3g} "
                f"(allowed {TOLERANCE:g} of {found.scale:.3g})"
            )
            if not found.holds:
                raise CommandError(f"wrong answer: {said}")
            say(said)


def _stay(cluster: LocalCluster, file: Path, known: bytes | None) -> None:
    say(f"try: curl {cluster.urls[0]}/v1/models    changes of {file} are served; Ctrl-C stops")
    while True:
        time.sleep(1)
        content = _content(file)
        if content not in (known, None):
            known = content
            _take_change(cluster, file)
        step(cluster)
        for line in (line for process in cluster.processes for line in process.refusals()):
            say(line)
        if cluster.is_stopped:
            _tell_end(cluster)
            return
        blocked = condition_of(cluster.resource, ConditionType.ROLLOUT_BLOCKED)
        if blocked.get("status") == "True":
            raise ServerDiedError(f"{blocked['reason']}: {blocked['message']}")


def _tell_end(cluster: LocalCluster) -> None:
    """Say how a model ended that was stopped.

    Raises:
        CommandError: it failed.

    """
    typer.echo(model_table(cluster.resource, datetime.now(UTC)))
    ended = condition_of(cluster.resource, ConditionType.RUN_ENDED)
    if ended["reason"] != Reason.SERVERS_ENDED:
        raise CommandError(f"{ended['reason']}: {ended['message']}")


def _content(file: Path) -> bytes | None:
    """Return what the file says; None while an editor has it taken away."""
    try:
        return file.read_bytes()
    except OSError:
        return None


def _take_change(cluster: LocalCluster, file: Path) -> None:
    """Have the new content of the file served; what cannot be is said, and all stays as it was."""
    try:
        resource, model = read_model(file)
        cluster.change(resource, model, _LOCAL_PODS)
    except CommandError as error:
        say(f"the change is not taken: {error}")
    else:
        say(f"{model.name}: {model.versions_column} from {file}")


def say(line: str) -> None:
    """Print one line of progress."""
    typer.echo(f"==> {line}")


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
