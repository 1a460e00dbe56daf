"""The cgroup that holds all pods of a run, so that their processes are found again whatever happens."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from tools.cluster.processes import identify
from tools.cluster.record import ProcessIdentity, Record

CGROUP_ROOT = Path("/sys/fs/cgroup")


def hierarchies() -> list[Path]:
    """Return the roots below which a cgroup has its folders: one a controller, or the unified one."""
    if (CGROUP_ROOT / "cgroup.controllers").exists():
        return [CGROUP_ROOT]
    return [entry for entry in CGROUP_ROOT.iterdir() if entry.is_dir() and not entry.is_symlink()]


def make_cgroup(record: Record, name: str) -> str:
    """Make and record a cgroup of the run under every controller; the kubelet puts all pods below it."""
    record.cgroups.append(name)
    record.save()
    for hierarchy in hierarchies():
        folder = hierarchy / name
        folder.mkdir(exist_ok=True)
        # A new cpuset is empty, and nothing could run in it.
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (folder / setting).exists() and (hierarchy / setting).exists():
                (folder / setting).write_text((hierarchy / setting).read_text())
        controllers = hierarchy / "cgroup.controllers"
        if hierarchy == CGROUP_ROOT and controllers.exists():
            _delegate(folder, controllers.read_text().split())
    return name


def _delegate(folder: Path, controllers: Iterable[str]) -> None:
    """Let groups below a unified cgroup use the controllers, as far as the machine allows."""
    for controller in controllers:
        with contextlib.suppress(OSError):
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def members(name: str) -> list[ProcessIdentity]:
    """Return the living processes of a cgroup and of all below it."""
    pids: set[int] = set()
    for hierarchy in hierarchies():
        for listed in (hierarchy / name).rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                pids.update(int(line) for line in listed.read_text().split())
    return [identity for pid in pids if (identity := identify(pid)) is not None]
