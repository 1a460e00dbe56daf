"""Says in words what a level lacks on this machine, and gets what can be got."""

import os
from pathlib import Path

from tools.cluster.go_programs import build, program_path
from tools.cluster.levels import PROGRAMS, Level
from tools.cluster.packages import install, missing_packages
from tools.cluster.progress import Report, to_stderr


def missing_requirements(level: Level) -> list[str]:
    """Return all that keeps a level from starting at once, in words; empty if nothing does.

    Installs and builds nothing.
    """
    missing = missing_tools(level)
    unbuilt = [name for name in PROGRAMS[level] if not program_path(name).exists()]
    if unbuilt:
        missing.append("programs to be built: " + ", ".join(unbuilt))
    if level is Level.NODE and not missing:
        from tools.cluster.images import base_image_archive

        if not base_image_archive().exists():
            missing.append("the base image to be made by debootstrap")
    return missing


def missing_tools(level: Level) -> list[str]:
    """Return what a level lacks that building programs does not bring: rights, the system, packages."""
    missing = []
    if os.uname().sysname != "Linux":
        missing.append("a Linux machine")
    if level is Level.NODE:
        if os.geteuid() != 0:
            missing.append("root (a kubelet makes cgroups, mounts and network namespaces)")
        if not Path("/sys/fs/cgroup").is_dir():
            missing.append("cgroups under /sys/fs/cgroup")
    if packages := missing_packages(level):
        missing.append("Debian packages: " + " ".join(packages))
    return missing


def how_to_get(level: Level) -> str:
    """Return the command that brings what a level lacks."""
    return f"as root on Debian: python -m tools.cluster prepare --level {level}"


def prepare(level: Level, report: Report = to_stderr) -> list[str]:
    """Install and build all that a level needs and can be had here; return what is still missing.

    May be called again: it is quick when everything is there.
    """
    packages = missing_packages(level)
    if packages and os.geteuid() == 0:
        install(packages, report)
    if missing := missing_tools(level):
        return missing
    for name in PROGRAMS[level]:
        build(name, report)
    if level is Level.NODE:
        from tools.cluster.images import base_image

        base_image(report)
    return missing_requirements(level)
