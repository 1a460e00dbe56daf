"""Which wheels go into the image? This folder: the project's own, and every locked dependency.

The image is installed from a folder and from nothing else, so this is the only step that reaches a
package index. Dependencies are downloaded as wheels with their hashes checked against the lock file, once
per lock file and target, into a cache outside the repository; the project's wheel is built anew each time,
from a copy of the sources, because a left-over `build/` would put deleted modules into it.

    python deploy/images/build_wheels.py                  # build/wheels, for the processor image
    python deploy/images/build_wheels.py --variant gpu    # build/wheels-gpu
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKS = {
    "cpu": ROOT / "requirements-runtime.lock",
    "gpu": ROOT / "deploy" / "images" / "requirements-runtime-gpu.lock",
}
FOLDERS = {"cpu": ROOT / "build" / "wheels", "gpu": ROOT / "build" / "wheels-gpu"}
DEPENDENCIES = "dependencies"
"""Subfolder of the wheels that are not the project's own. It changes only with the lock file, so the image's
large layer does too; the lock file lies in it, and the image build checks the hashes once more."""
COMPLETE = "complete"
"""Written into a cache folder last: without it, an interrupted download is started over."""
EARLIEST_ZIP_DATE = "315532800"
"""1980-01-01, the first date that a wheel can hold; used where the sources are not a git checkout."""

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)", re.MULTILINE)


class WheelsError(Exception):
    """The folder of wheels cannot be made; the text says what to do about it."""


@dataclass(frozen=True)
class Target:
    """The Python that the image runs: wheels are chosen for it, not for the machine that builds."""

    python: str
    """Major and minor version, such as "3.11"."""
    platforms: tuple[str, ...] = ()
    """Wheel platform tags, best first; empty means those of this machine."""

    def pip_arguments(self) -> list[str]:
        """Return what `pip download` has to be told; nothing where the target is this interpreter."""
        if not self.platforms and self.python == running_python():
            return []
        arguments = ["--implementation", "cp", "--python-version", self.python]
        for platform in self.platforms:
            arguments += ["--platform", platform]
        return arguments


def running_python() -> str:
    """Return the version of this interpreter as "major.minor"."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def cache_root(environment: Mapping[str, str]) -> Path:
    """Return the folder that holds the downloads of every lock file."""
    if own := environment.get("MCP2026_CACHE"):
        return Path(own) / "wheels"
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mcp2026" / "wheels"


def cache_key(lock: bytes, target: Target) -> str:
    """Return the folder name for one lock file and one target."""
    digest = hashlib.sha256(lock)
    digest.update("\0".join(("", target.python, *target.platforms)).encode())
    return digest.hexdigest()[:16]


def pins(lock: str) -> dict[str, list[str]]:
    """Return the locked versions of each distribution; several where markers choose between them."""
    found: dict[str, list[str]] = {}
    for match in _PIN.finditer(lock):
        found.setdefault(match["name"], []).append(match["version"])
    return found


def download(lock: Path, target: Target, cache: Path) -> Path:
    """Fetch the locked wheels unless they are there; return the folder that holds them."""
    folder = cache / cache_key(lock.read_bytes(), target)
    if (folder / COMPLETE).exists():
        print(f"dependencies: {len(wheels_in(folder))} wheels, kept in {folder}", flush=True)
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    total = len(pins(lock.read_text()))
    seen = 0

    def announce(line: str) -> None:
        nonlocal seen
        if line.startswith("Collecting "):
            seen += 1
            print(f"dependencies: {seen}/{total} {line.split()[1]}", flush=True)

    with tempfile.TemporaryDirectory(dir=cache, prefix="partial-") as partial:
        command = [sys.executable, "-m", "pip", "download", "--require-hashes", "--no-deps", "--no-input"]
        command += ["--only-binary", ":all:", "--progress-bar", "off", "--dest", partial]
        command += ["--requirement", str(lock), *target.pip_arguments()]
        run(
            command,
            announce,
            advice="Is a package index reachable, and has every locked package a wheel for this target?",
        )
        (Path(partial) / COMPLETE).touch()
        Path(partial).chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        Path(partial).rename(folder)
        Path(partial).mkdir()  # what the context manager removes
    print(f"dependencies: {len(wheels_in(folder))} wheels into {folder}", flush=True)
    return folder


def build_own_wheel(destination: Path) -> Path:
    """Build the project's wheel from a clean copy of its packages; return its path."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    with tempfile.TemporaryDirectory(prefix="mcp2026-sources-") as folder:
        sources = Path(folder)
        for name in ("pyproject.toml", "LICENSE", "README.md"):
            if (ROOT / name).exists():
                shutil.copy2(ROOT / name, sources / name)
        for package in project["tool"]["setuptools"]["package-dir"].values():
            shutil.copytree(ROOT / package, sources / package, ignore=shutil.ignore_patterns("__pycache__"))
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(destination)]
        run(
            [*command, str(sources)],
            advice="`make setup` installs `build` and setuptools; run this with .venv/bin/python.",
            environment={**os.environ, "SOURCE_DATE_EPOCH": source_date()},
        )
    (wheel,) = destination.glob(f"{project['project']['name']}-*.whl")
    print(f"project: {wheel.name}", flush=True)
    return wheel


def source_date() -> str:
    """Return the time of the last commit in seconds: the same sources give the same wheel, bit for bit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return EARLIEST_ZIP_DATE
    return answer.stdout.strip() or EARLIEST_ZIP_DATE


def run(
    command: Sequence[str],
    announce: Callable[[str], None] = lambda _line: None,
    *,
    advice: str,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a command, hand each line of its output on, and show all of it when it fails."""
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            announce(line)
    if process.returncode:
        raise WheelsError(f"{' '.join(command)}\n{''.join(lines)}exited with {process.returncode}. {advice}")


def wheels_in(folder: Path) -> list[Path]:
    """Return the wheels in a folder, sorted by name."""
    return sorted(folder.glob("*.whl"))


def assemble(variant: str, target: Target, output: Path, cache: Path) -> None:
    """Replace the output folder by one with the lock file and all wheels that the image is made of."""
    lock = LOCKS[variant]
    dependencies = download(lock, target, cache)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".wheels-") as folder:
        fresh = Path(folder) / output.name
        (fresh / DEPENDENCIES).mkdir(parents=True)
        build_own_wheel(fresh)
        for wheel in wheels_in(dependencies):
            try:
                os.link(wheel, fresh / DEPENDENCIES / wheel.name)
            except OSError:  # the cache lies on another file system
                shutil.copy2(wheel, fresh / DEPENDENCIES / wheel.name)
        shutil.copy2(lock, fresh / DEPENDENCIES / "requirements.lock")
        if output.exists():
            shutil.rmtree(output)
        fresh.rename(output)
    wheels = [*wheels_in(output), *wheels_in(output / DEPENDENCIES)]
    size = sum(wheel.stat().st_size for wheel in wheels)
    print(f"{output}: {len(wheels)} wheels, {size / 1e6:.1f} MB", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the folder of wheels; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--variant", choices=sorted(LOCKS), default="cpu", help="cpu or gpu (default: cpu)")
    parser.add_argument("--output", type=Path, help="folder to make (default: build/wheels[-gpu])")
    parser.add_argument(
        "--python", default=running_python(), help="Python version of the base image (default: this one)"
    )
    parser.add_argument(
        "--platform",
        action="append",
        default=[],
        help="wheel platform tag of the base image, best first; repeatable (default: this machine)",
    )
    options = parser.parse_args(arguments)
    output = options.output or FOLDERS[options.variant]
    try:
        target = Target(options.python, tuple(options.platform))
        assemble(options.variant, target, output.resolve(), cache_root(os.environ))
    except WheelsError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
