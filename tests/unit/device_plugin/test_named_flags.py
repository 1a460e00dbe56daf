"""Messages and pages name only flags that there are, and the page names them all."""

import re
from pathlib import Path

import pytest

from mcp2026.device_plugin.settings import _parser

PLUGIN = Path(__file__).parents[3] / "device_plugin"
FLAGS = {flag for action in _parser({})._actions for flag in action.option_strings if flag.startswith("--")}
OF_OTHERS = {"--gpu-reset"}
"""Of nvidia-smi."""
TEXTS = [path for path in PLUGIN.rglob("*.py") if path.parent.name != "kubelet"]  # which calls a compiler
_NAMED = re.compile(r"(?<![-\w])--[a-z][-a-z]*[a-z]")


@pytest.mark.parametrize(
    "path",
    sorted([*TEXTS, PLUGIN / "README.md"]),
    ids=lambda path: str(path.relative_to(PLUGIN)),
)
def test_a_flag_that_is_named_is_there(path: Path) -> None:
    assert set(_NAMED.findall(path.read_text())) <= FLAGS | OF_OTHERS


def test_the_page_names_every_flag() -> None:
    page = (PLUGIN / "README.md").read_text().replace("--[no-]", "--")
    assert {flag for flag in FLAGS if not flag.startswith("--no-")} - {"--help"} <= set(_NAMED.findall(page))
