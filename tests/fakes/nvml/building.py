"""Compiles the fake `libnvidia-ml.so.1`; a library that lacks functions is only linked anew."""

import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

SOURCES = sorted(Path(__file__).parent.glob("*.c"))
LIBRARY_NAME = "libnvidia-ml.so.1"
FLAGS = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-pthread")


def function_names() -> list[str]:
    """Return the names of all functions of NVML that the fake has, sorted."""
    pattern = re.compile(r"^API (?:nvmlReturn_t|const char \*)\s*(nvml\w+)\(", re.MULTILINE)
    return sorted(name for source in SOURCES for name in pattern.findall(source.read_text()))


def compile_objects(directory: Path) -> Path:
    """Compile the sources into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", *FLAGS, "-c", *map(str, SOURCES)], check=True, cwd=directory)
    return directory


def link_library(directory: Path, objects: Path, without: Iterable[str] = ()) -> Path:
    """Link what `compile_objects` made into `directory`, without the functions named in `without`."""
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / LIBRARY_NAME
    command = ["gcc", "-shared", "-pthread", f"-Wl,-soname,{LIBRARY_NAME}"]
    if missing := sorted(without):
        script = directory / "symbols.map"
        script.write_text("{ local: " + " ".join(f"{name};" for name in missing) + " };\n")
        command.append(f"-Wl,--version-script={script}")
    unfinished = library.with_suffix(".unfinished")
    files = [str(objects / source.with_suffix(".o").name) for source in SOURCES]
    subprocess.run([*command, "-o", str(unfinished), *files], check=True)
    unfinished.replace(library)
    return library


def build_library(directory: Path, without: Iterable[str] = ()) -> Path:
    """Compile the library into `directory`, as a driver would that lacks the functions named in `without`."""
    with tempfile.TemporaryDirectory() as objects:
        return link_library(directory, compile_objects(Path(objects)), without)
