"""Which Debian packages a level needs, which of them this machine lacks, and how to install them."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.cluster.cache import cache_folder, held
from tools.cluster.errors import ClusterError
from tools.cluster.levels import Level
from tools.cluster.progress import Report, run_reporting

ADMINISTRATOR_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where programs for the administrator lie, which are not on every user's PATH."""


@dataclass(frozen=True, slots=True)
class Package:
    """A Debian package and a file or program by which to tell that it is there."""

    name: str
    provides: str
    """A program's name, or an absolute path."""


_CONTROL_PLANE = (Package("openssl", "openssl"),)
PACKAGES: dict[Level, tuple[Package, ...]] = {
    Level.CONTROL_PLANE: _CONTROL_PLANE,
    Level.KWOK: _CONTROL_PLANE,
    Level.NODE: (
        *_CONTROL_PLANE,
        Package("containerd", "containerd"),
        Package("runc", "runc"),
        Package("containernetworking-plugins", "/usr/lib/cni/bridge"),
        Package("buildah", "buildah"),
        Package("debootstrap", "debootstrap"),
        Package("iproute2", "ip"),
        Package("iptables", "iptables"),
        Package("nftables", "nft"),
    ),
}


def is_present(package: Package) -> bool:
    """Tell whether what a package provides is on this machine, wherever it came from."""
    if package.provides.startswith("/"):
        return Path(package.provides).exists()
    return find_program(package.provides) is not None


def find_program(name: str) -> str | None:
    """Return a program's path, looked for where an administrator's programs lie, too."""
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), *ADMINISTRATOR_FOLDERS])
    return shutil.which(name, path=folders)


def missing_packages(level: Level) -> list[str]:
    """Return the names of the packages that a level still needs."""
    return [package.name for package in PACKAGES[level] if not is_present(package)]


def install(names: Iterable[str], report: Report) -> None:
    """Install Debian packages; services that they bring are not started."""
    wanted = sorted(names)
    if not wanted:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(f"only root on Debian can install {' '.join(wanted)}")
    logs = cache_folder() / "logs"
    # RUNLEVEL=1 makes the packages' scripts leave their services alone.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    with held(cache_folder() / "packages.lock"):
        update = ["apt-get", "update", "--quiet"]
        run_reporting("apt-get update", update, report, log=logs / "apt-update.log", environment=environment)
        run_reporting(
            f"installing {' '.join(wanted)}",
            ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *wanted],
            report,
            log=logs / "apt-install.log",
            environment=environment,
        )
