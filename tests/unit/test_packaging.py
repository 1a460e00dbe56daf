"""The folder `operator/` must not shadow the standard library, and the wheel must hold every package."""

import multiprocessing
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGED = (
    "api",
    "topology",
    "runtime",
    "device_plugin",
    "scheduler_extender",
    "operator",
    "client",
    "cli",
    "crds",
)


def double(number: int) -> int:
    return 2 * number


def test_no_folder_named_operator_is_a_regular_package() -> None:
    assert not [path for path in ROOT.rglob("operator/__init__.py") if ".venv" not in path.parts]


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "import operator, collections; assert operator.add(1, 2) == 3"],
        ["-m", "pytest", "--version"],
        ["-m", "pip", "--version"],
        ["-m", "venv", "--help"],
        ["-c", "import mcp2026.operator.__main__, operator; assert 'mcp2026' not in operator.__name__"],
    ],
    ids=lambda arguments: " ".join(arguments)[:40],
)
def test_python_started_in_the_root_finds_the_standard_operator(arguments: list[str]) -> None:
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True, timeout=60)


def test_a_spawn_pool_started_in_the_root_works() -> None:
    code = (
        "import multiprocessing, operator\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.apply_async(operator.add, (20, 22)).get(timeout=30))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    )
    assert run.stdout.strip() == "42"


def test_a_spawn_pool_works_inside_the_tests() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply_async(double, (21,)).get(timeout=30) == 42


def test_the_wheel_holds_every_folder_with_code_or_data() -> None:
    declared = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = {
        "mcp2026." + ".".join(path.parent.relative_to(ROOT).parts)
        for top in PACKAGED
        for path in (ROOT / top).rglob("*")
        if path.suffix in {".py", ".yaml"} and "__pycache__" not in path.parts
    }
    assert declared == found
