"""Puts the peers into virtual environments of their own, outside the repository."""

import shutil
import subprocess
import sys
from pathlib import Path

from bench.errors import BenchError
from bench.peers.peer import PEERS, environment_folder, interpreter
from tools.cluster.cache import content_key
from tools.cluster.progress import Report, run_reporting

FREE_GIB = 2.0
"""Kept free on the disk; the largest environment takes about half a GiB."""
_KEY_FILE = ".requirements"


def installable() -> list[str]:
    """Return the names of the environments."""
    return sorted(path.parent.name for path in PEERS.glob("*/requirements.txt"))


def requirements_file(name: str) -> Path:
    """Return the pinned versions of an environment."""
    return PEERS / name / "requirements.txt"


def is_installed(name: str) -> bool:
    """Return whether the environment is there with the versions that are pinned now."""
    key = environment_folder(name) / _KEY_FILE
    return key.exists() and key.read_text() == _key(name)


def _key(name: str) -> str:
    return content_key({"requirements": requirements_file(name).read_bytes()})


def install(name: str, report: Report) -> None:
    """Make the environment of a peer if it is not there; it appears whole or not at all.

    Raises:
        BenchError: the name is not known, or the disk is too full.
        ClusterError: the installation failed; the message ends with its log.

    """
    if name not in installable():
        raise BenchError(f"no peer {name!r}; known: {', '.join(installable())}")
    if is_installed(name):
        report(f"{name}: already there")
        return
    folder = environment_folder(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder.parent).free / 2**30
    if free < FREE_GIB:
        raise BenchError(f"{folder.parent} has {free:.1f} GiB free; {FREE_GIB:g} are needed")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [interpreter(name), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    log = folder.with_name(f"{name}.log")
    run_reporting(f"installing {name}", [*pip, "--requirement", requirements_file(name)], report, log=log)
    (folder / _KEY_FILE).write_text(_key(name))
