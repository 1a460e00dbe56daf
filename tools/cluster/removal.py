"""Takes a run down from its record, whoever made it and however that process ended."""

import contextlib
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from tools.cluster.cache import held
from tools.cluster.cgroups import hierarchies, members
from tools.cluster.containerd import outside_folder
from tools.cluster.errors import ClusterError
from tools.cluster.processes import end, is_alive, of_run
from tools.cluster.progress import Report
from tools.cluster.record import Record, boot_id, records, state_folder

RELEASE_TIMEOUT_S = 20.0
"""Seconds for the kernel to let go of processes, mounts and cgroups."""


def remove(record: Record) -> None:
    """End what the run started, undo what it changed, and delete its folder. May be called again."""
    same_boot = record.boot_id == boot_id()
    if same_boot:
        # First those that would start others anew, then what they started, then what runs in pods.
        end(program.identity for program in reversed(record.programs))
        end(of_run(record.run_id))
        for cgroup in record.cgroups:
            _end_cgroup(cgroup)
        for folder in record.mounts:
            _unmount_under(folder)
        for cgroup in record.cgroups:
            _remove_cgroup(cgroup)
        for interface in record.interfaces:
            _quietly("ip", "link", "delete", interface)
        for table in record.nft_tables:
            _quietly("nft", "delete", "table", *table.split())
        for name, value in record.sysctls.items():
            Path("/proc/sys", *name.split(".")).write_text(value)
    for left in outside_folder(Path(record.folder)):
        left.unlink(missing_ok=True)
    for folder in record.link_folders:
        _remove_links(Path(folder), record.folder)
    _delete_folder(Path(record.folder))


def sweep(report: Report) -> None:
    """Remove the remains of runs whose owner has ended without taking them down."""
    with held(state_folder() / "sweep.lock"):
        for record in list(records()):
            if is_remain(record):
                report(f"removing the remains of the run {record.name} (its owner has ended)")
                remove(record)


def is_remain(record: Record) -> bool:
    """Tell whether a run belongs to a process that is gone, or to an earlier start of the machine."""
    if record.boot_id != boot_id():
        return True
    return record.owner is not None and not is_alive(record.owner)


def mounts_under(folder: str, mountinfo: str) -> list[str]:
    """Return the mount points at and below a folder from /proc/self/mountinfo, the innermost first."""
    points = []
    for line in mountinfo.splitlines():
        point = _unescaped(line.split()[4])
        if point == folder or point.startswith(folder.rstrip("/") + "/"):
            points.append(point)
    return points[::-1]


def _unescaped(text: str) -> str:
    """Undo the octal escapes that the kernel writes for spaces and the like."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _unmount_under(folder: str) -> None:
    for _ in range(3):  # a mount can cover another one at the same place
        points = mounts_under(folder, Path("/proc/self/mountinfo").read_text())
        if not points:
            return
        for point in points:
            _quietly("umount", "--lazy", point)
    left = mounts_under(folder, Path("/proc/self/mountinfo").read_text())
    if left:
        raise ClusterError(f"still mounted under {folder}: {', '.join(left)}")


def _end_cgroup(cgroup: str) -> None:
    deadline = time.monotonic() + RELEASE_TIMEOUT_S
    while alive := members(cgroup):
        end(alive)
        if time.monotonic() > deadline:
            raise ClusterError(f"processes of cgroup {cgroup} do not end: {sorted(one.pid for one in alive)}")


def _remove_cgroup(cgroup: str) -> None:
    """Delete a cgroup with all below it; the kernel may need a moment after its last process ended."""
    deadline = time.monotonic() + RELEASE_TIMEOUT_S
    for hierarchy in hierarchies():
        top = hierarchy / cgroup
        while top.exists():
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
            if top.exists():
                if time.monotonic() > deadline:
                    raise ClusterError(f"the cgroup {top} cannot be deleted")
                time.sleep(0.05)


def _remove_links(folder: Path, into: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        for entry in folder.iterdir():
            if entry.is_symlink() and str(entry.readlink()).startswith(into + "/"):
                entry.unlink(missing_ok=True)


def _delete_folder(folder: Path) -> None:
    """Delete a run's folder, but never through a mount that is still there."""
    left = mounts_under(str(folder), Path("/proc/self/mountinfo").read_text())
    if left:
        raise ClusterError(f"not deleting {folder}: still mounted are {', '.join(left)}")
    if folder.exists():
        shutil.rmtree(folder)


def _quietly(*command: str) -> None:
    """Run a command whose failure means that there was nothing to undo."""
    subprocess.run(command, capture_output=True, check=False)
