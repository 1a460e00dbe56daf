"""Who may import whom is a contract; this is where it is checked on every run of the tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
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


def lint_imports(links: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            str(Path(sys.executable).with_name("lint-imports")),
            "--no-cache",
            "--no-logo",
            str(ROOT / "pyproject.toml"),
        ],
        cwd=links.parent,
        env={**os.environ, "PYTHONPATH": str(links)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def links(tmp_path: Path) -> Path:
    package = tmp_path / "links" / "mcp2026"
    package.mkdir(parents=True)
    for folder in FOLDERS:
        (package / folder).symlink_to(ROOT / folder)
    return package.parent


def test_every_import_is_allowed_by_the_table(links: Path) -> None:
    run = lint_imports(links)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "0 broken" in run.stdout


def test_a_component_that_imports_another_is_caught(links: Path) -> None:
    runtime = links / "mcp2026" / "runtime"
    runtime.unlink()
    runtime.mkdir()
    (runtime / "__init__.py").write_text("import mcp2026.topology.score\n")
    run = lint_imports(links)
    assert run.returncode != 0
    assert "mcp2026.runtime -> mcp2026.topology.score" in run.stdout
