"""Brings a cluster up at one of the levels, and leaves nothing behind if that fails."""

import os
from collections.abc import Mapping

from tools.cluster.cache import held
from tools.cluster.cluster import Cluster
from tools.cluster.control_plane import ControlPlaneOptions, start_control_plane
from tools.cluster.errors import ClusterError, RequirementsMissingError
from tools.cluster.levels import Level
from tools.cluster.processes import identify
from tools.cluster.progress import Report, to_stderr
from tools.cluster.record import Record, boot_id, checked_name, state_folder
from tools.cluster.removal import remove, sweep
from tools.cluster.requirements import missing_tools


def up(
    name: str,
    level: Level = Level.CONTROL_PLANE,
    *,
    options: ControlPlaneOptions | None = None,
    owned: bool = False,
    kwok_nodes: int = 5,
    kwok_resources: Mapping[str, str] | None = None,
    report: Report = to_stderr,
) -> Cluster:
    """Bring a cluster up and return it when it is ready.

    With `owned`, the cluster belongs to this process: if the process ends without taking it down, the next
    `up` on this machine does. Otherwise it stays until `down`. Remains of earlier runs go first.
    """
    if missing := missing_tools(level):
        raise RequirementsMissingError(level, missing)
    sweep(report)
    record = _new_record(name, level)
    try:
        _start(record, level, options or ControlPlaneOptions(), kwok_nodes, kwok_resources or {}, report)
    except BaseException:
        remove(record)
        raise
    if not owned:
        record.owner = None
        record.save()
    return Cluster(record)


def _new_record(name: str, level: Level) -> Record:
    """Make the folder and the record of a new run; a name can be taken once only.

    Until it is up a run belongs to this process: one that is killed half-way is a remain, too.
    """
    folder = state_folder() / checked_name(name)
    owner = identify(os.getpid())
    record = Record(name=name, level=level, folder=str(folder), boot_id=boot_id(), owner=owner)
    with held(state_folder() / "names.lock"):
        if record.path.exists():
            raise ClusterError(
                f"a cluster {name!r} is up already: `python -m tools.cluster down --name {name}` ends it"
            )
        folder.mkdir(parents=True, exist_ok=True)
        record.save()
    return record


def _start(
    record: Record,
    level: Level,
    options: ControlPlaneOptions,
    kwok_nodes: int,
    kwok_resources: Mapping[str, str],
    report: Report,
) -> None:
    match level:
        case Level.CONTROL_PLANE:
            start_control_plane(record, options, report)
        case Level.NODE:
            from tools.cluster.node import start_node

            start_node(record, options, report)
        case Level.KWOK:
            from tools.cluster.kwok import start_kwok

            start_control_plane(record, options, report)
            extra = options.extra_arguments.get("kwok", ())
            start_kwok(Cluster(record), kwok_nodes, kwok_resources, report, extra)
