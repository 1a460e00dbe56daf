"""All processes are started and refused in one way."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mcp2026.api.errors import SettingsError
from mcp2026.device_plugin.settings import read_settings as read_plugin_settings
from mcp2026.operator.settings import read_settings as read_operator_settings
from mcp2026.runtime.dataset.settings import read_settings as read_batch_settings
from mcp2026.runtime.settings_reading import read_settings as read_server_settings
from mcp2026.scheduler_extender.settings import read_settings as read_extender_settings

ROOT = Path(__file__).parents[2]

Read = Callable[[Sequence[str], Mapping[str, str]], Any]

PROCESSES = [
    pytest.param(read_plugin_settings, ("--node-name", "n"), "mcp2026-device-plugin", id="device plugin"),
    pytest.param(read_operator_settings, ("--runtime-image", "i"), "mcp2026-operator", id="operator"),
    pytest.param(read_server_settings, ("--model-path", "m.onnx"), "mcp2026-server", id="runtime"),
    pytest.param(read_extender_settings, (), "mcp2026-scheduler-extender", id="scheduler extender"),
    pytest.param(
        read_batch_settings,
        ("--model-path", "m.onnx", "--input", "a.npy", "--output", "b.npy"),
        "mcp2026-batch",
        id="batch",
    ),
]


@pytest.mark.parametrize(("read", "needed", "program"), PROCESSES)
def test_each_logs_text_from_info_on_unless_told_otherwise(
    read: Read, needed: tuple[str, ...], program: str
) -> None:
    settings = read(needed, {})
    assert (settings.log_format, settings.log_level) == ("text", "INFO")
    settings = read((*needed, "--log-format", "json", "--log-level", "DEBUG"), {})
    assert (settings.log_format, settings.log_level) == ("json", "DEBUG")


@pytest.mark.parametrize("flags", [("--nothing",), ("--log-format", "xml"), ("--log-level", "LOUD")])
@pytest.mark.parametrize(("read", "needed", "program"), PROCESSES)
def test_each_refuses_a_wrong_flag_by_its_name(
    read: Read, needed: tuple[str, ...], program: str, flags: tuple[str, ...]
) -> None:
    with pytest.raises(SettingsError) as refused:
        read((*needed, *flags), {})
    assert flags[0] in str(refused.value)
    assert "; allowed: " in str(refused.value)


@pytest.mark.parametrize(("read", "needed", "program"), PROCESSES)
def test_each_tells_its_flags(
    read: Read, needed: tuple[str, ...], program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read(("--help",), {})
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {program} ")


@pytest.mark.parametrize("read", [read_plugin_settings, read_operator_settings, read_extender_settings])
def test_help_tells_what_each_flag_is_for_and_its_default(
    read: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read(("--help",), {})
    _, *entries = re.split(r"\n  (?=--)", capsys.readouterr().out.partition("options:\n")[2])
    assert entries
    for entry in entries:
        assert re.search(r" {2,}[^-\s].*\[.+\]", entry, re.DOTALL), entry


def test_the_servers_help_tells_the_range_of_each_number(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_server_settings(("--help",), {})
    numbers = re.findall(r"\n  --[a-z0-9-]+ N\b(.*?)(?=\n  --|\n\n)", capsys.readouterr().out, re.DOTALL)
    assert len(numbers) > 20
    for told in numbers:
        assert re.search(r"\), [\d.]+ to \d+$", " ".join(told.split())), told


@pytest.mark.parametrize(
    ("read", "folder"),
    [
        pytest.param(read_plugin_settings, "device_plugin", id="device plugin"),
        pytest.param(read_operator_settings, "operator", id="operator"),
        pytest.param(read_extender_settings, "scheduler_extender", id="scheduler extender"),
    ],
)
def test_the_table_of_settings_in_the_readme_has_exactly_the_flags(
    read: Read, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read(("--help",), {})
    flags = set(re.findall(r"--[a-z][-a-z]*", capsys.readouterr().out)) - {"--help"}
    section = (ROOT / folder / "README.md").read_text().partition("## Settings\n")[2].partition("\n## ")[0]
    rows = " ".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
    switches = re.findall(r"--\[no-\]([a-z-]+)", rows)
    told = set(re.findall(r"--[a-z][-a-z]*", rows))
    told |= {f"--{switch}" for switch in switches} | {f"--no-{switch}" for switch in switches}
    assert told == flags
