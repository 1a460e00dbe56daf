"""Flags, environment, defaults; and an operator that cannot start says why."""

import subprocess
import sys
from pathlib import Path

import pytest

from mcp2026.api.errors import SettingsError
from mcp2026.operator.settings import PodSettings, Settings, read_settings
from tests.loopback import free_port, kubeconfig_for


def test_the_image_alone_is_enough() -> None:
    assert read_settings(["--runtime-image", "r/x:1"], {}) == Settings(PodSettings("r/x:1"))


def test_the_environment_stands_in_for_the_flag_and_the_flag_wins() -> None:
    environment = {"MCP2026_RUNTIME_IMAGE": "from-environment"}
    assert read_settings([], environment).pods.runtime_image == "from-environment"
    assert read_settings(["--runtime-image", "flag"], environment).pods.runtime_image == "flag"


def test_every_flag_arrives() -> None:
    arguments = [
        *("--namespace", "a", "--namespace", "b", "--runtime-image", "r/x:1"),
        *("--runtime-image-pull-policy", "Never", "--scheduler-name", "mine", "--liveness-port", "0"),
        *("--resync-seconds", "2", "--workers", "8", "--log-format", "json"),
        *("--log-level", "DEBUG"),
    ]
    assert read_settings(arguments, {}) == Settings(
        PodSettings("r/x:1", "Never", "mine", log_format="json"),
        namespaces=("a", "b"),
        liveness_port=0,
        resync_seconds=2.0,
        workers=8,
        log_format="json",
        log_level="DEBUG",
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--runtime-image: not given; allowed: an image, here or in $MCP2026_RUNTIME_IMAGE"),
        (["--runtime-image", "x", "--workers", "0"], "allowed: 1 to 64"),
        (
            ["--runtime-image", "x", "--resync-seconds", "0.5"],
            "--resync-seconds: 0.5 is out of range",
        ),
        (["--runtime-image", "x", "--resync-seconds", "nan"], "--resync-seconds: nan is out of range"),
        (["--runtime-image", "x", "--liveness-port", "70000"], "--liveness-port: 70000 is no port"),
        (["--runtime-image", "x", "--nothing"], "--nothing; allowed: see mcp2026-operator --help"),
    ],
)
def test_what_is_not_allowed_is_refused_with_what_is(arguments: list[str], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings(arguments, {})
    assert said in str(refused.value)


def start(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mcp2026.operator", "--runtime-image", "x", "--liveness-port", "0"],
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "content", [None, "clusters: [", "just words"], ids=["absent", "no YAML", "no kubeconfig"]
)
def test_without_usable_credentials_it_says_what_it_looked_for(tmp_path: Path, content: str | None) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    if content is not None:
        kubeconfig.write_text(content)
    ended = start({"HOME": str(tmp_path), "KUBECONFIG": str(kubeconfig)})
    assert ended.returncode == 1
    assert "neither a service account of a pod nor a usable kubeconfig file is there" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_api_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    port = free_port()
    kubeconfig = kubeconfig_for(port, tmp_path)
    ended = start({"HOME": str(tmp_path), "KUBECONFIG": str(kubeconfig)})
    assert ended.returncode == 1
    assert f"mcp2026-operator: http://127.0.0.1:{port}" in ended.stderr
    assert "Traceback" not in ended.stderr
