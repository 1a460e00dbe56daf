"""Triton's perf_analyzer, unmodified: `python -m tests.contract.runtime.perf_analyzer` fetches it.

It is fetched from the package index into the cache of `tools.cluster.cache`, outside the repository. The
program needs glibc 2.38; where the system's is older, the libraries of Debian trixie are put beside it and
it runs through their own loader. For --shared-memory it opens the CUDA runtime library, also without a GPU.
"""

import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tools.cluster.cache import cache_folder
from tools.cluster.images import debian_mirror

GET_IT = "python -m tests.contract.runtime.perf_analyzer"

_ANALYZER = "perf-analyzer==2.60.0"
_CUDA_RUNTIME = "nvidia-cuda-runtime-cu12==12.9.79"
_PLATFORM = "manylinux_2_38_x86_64"
_GLIBC = (2, 38)
_PACKAGES = ("libc6", "libstdc++6", "libgcc-s1")
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_PATIENCE = 120.0


def folder() -> Path:
    """Return where the program lies, or will lie."""
    return cache_folder() / "perf-analyzer-2.60.0"


def command() -> list[str] | None:
    """Return the beginning of the command line, None if the program was not fetched."""
    root = folder()
    program = root / "wheel/perf_analyzer/bin/perf_analyzer"
    if not program.exists():
        return None
    loader = root / "trixie/usr/lib64/ld-linux-x86-64.so.2"
    if not loader.exists():
        return [str(program)]
    return [
        str(loader),
        "--library-path",
        f"{root}/trixie/usr/lib/x86_64-linux-gnu:{root}/cuda",
        str(program),
    ]


def run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    start = command()
    assert start is not None
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder() / "cuda")}
    if len(start) > 1:
        environment.pop("LD_LIBRARY_PATH")
    return subprocess.run(
        [*start, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )


def fetch() -> Path:
    """Fetch the program and what it needs, whole or not at all; return its folder."""
    target = folder()
    if command() is not None:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        root = Path(work) / "root"
        _unpack_wheel(_ANALYZER, root / "wheel")
        program = root / "wheel/perf_analyzer/bin/perf_analyzer"
        program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        _unpack_wheel(_CUDA_RUNTIME, Path(work) / "cuda")
        (library,) = (Path(work) / "cuda").rglob("libcudart.so.*")
        (root / "cuda").mkdir()
        shutil.copy(library, root / "cuda/libcudart.so")
        version = tuple(map(int, platform.libc_ver()[1].split(".")))
        if version < _GLIBC:
            _unpack_trixie(root / "trixie", Path(work))
        root.replace(target)
    return target


def _unpack_wheel(requirement: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as work:
        options = ["--no-deps", "--only-binary=:all:", f"--platform={_PLATFORM}"]
        options.append("--platform=manylinux2014_x86_64")
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", *options, "--dest", work, requirement],
            check=True,
        )
        (wheel,) = Path(work).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)


def _unpack_trixie(target: Path, work: Path) -> None:
    """Unpack the C and C++ libraries of Debian trixie; the system's own packages are not touched."""
    apt = work / "apt"
    (apt / "lists/partial").mkdir(parents=True)
    (apt / "archives/partial").mkdir(parents=True)
    mirrors = debian_mirror()
    if not mirrors:
        raise SystemExit("The system's glibc is too old, and there is no Debian mirror to get a newer from")
    sources = apt / "trixie.sources"
    sources.write_text(
        f"Types: deb\nURIs: {mirrors[0]}\nSuites: trixie\nComponents: main\nSigned-By: {_KEYRING}\n"
    )
    settings = {
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": apt,
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
        "APT::Sandbox::User": "root",
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    subprocess.run(["apt-get", "--quiet", *options, "update"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(
        ["apt-get", "--quiet", *options, "download", *_PACKAGES],
        check=True,
        cwd=apt,
        stdout=subprocess.DEVNULL,
    )
    for package in apt.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(target)], check=True)


if __name__ == "__main__":
    print(fetch())
