"""Texts that look like YAML and make no value: each reader of files names the file and what is wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mcp2026.api.errors import ConfigurationError
from mcp2026.cli.errors import CommandError
from mcp2026.cli.model_file import read_model
from mcp2026.cli.topology_command import _replay
from mcp2026.cli.what_if_pods import pods_from_file
from mcp2026.device_plugin.adapters.credentials import find_credentials
from mcp2026.device_plugin.configuration import parse_configuration
from mcp2026.device_plugin.errors import NoCredentialsError
from mcp2026.scheduler_extender.configuration import parse_configuration as parse_policy
from mcp2026.topology.errors import MachineFormatError
from mcp2026.topology.machine import machine_from_file

TEXTS = [
    pytest.param("a: 2026-13-45", id="a date that is none"),
    pytest.param(f"a: {'9' * 5000}", id="an integer of too many digits"),
    pytest.param("a: !!int ''", id="an integer without digits"),
    pytest.param("a: !!float much", id="a number in words"),
    pytest.param("a: !!bool perhaps", id="neither true nor false"),
    pytest.param("a: !!timestamp soon", id="a time in words"),
    pytest.param("? [1, 2]\n: 3", id="a list as a key"),
    pytest.param("[" * 5000, id="nested deeply"),
    pytest.param("a: [", id="cut off"),
]
READERS = [
    pytest.param(
        lambda path: parse_configuration(path.read_text(), str(path)), ConfigurationError, id="plugin"
    ),
    pytest.param(lambda path: parse_policy(path.read_text(), str(path)), ConfigurationError, id="extender"),
    pytest.param(
        lambda path: find_credentials({"KUBECONFIG": str(path)}), NoCredentialsError, id="kubeconfig"
    ),
    pytest.param(machine_from_file, MachineFormatError, id="machine"),
    pytest.param(pods_from_file, CommandError, id="pods"),
    pytest.param(read_model, CommandError, id="model"),
    pytest.param(lambda path: _replay(path, "text"), CommandError, id="answer"),
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("read", "error"), READERS)
def test_what_is_no_yaml_is_refused_by_name(
    read: Callable[[Path], object], error: type[Exception], text: str, tmp_path: Path
) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    with pytest.raises(error, match=r"file\.yaml"):
        read(path)
