"""helm, and the chart installed on a real API server."""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import yaml

from tests.cluster.chart.rendering import CHART, NAMESPACE, as_flags
from tools.cluster.cluster import Cluster
from tools.cluster.go_programs import build


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs helm, away from the repositories and plugins of whoever runs the tests."""
    home = tmp_path_factory.mktemp("helm")
    program = build("helm")
    environment = {**os.environ, **{f"HELM_{part}_HOME": str(home) for part in ("CACHE", "CONFIG", "DATA")}}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(program), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, env=environment
        )

    return run


@pytest.fixture(scope="module")
def render(helm: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., list[dict[str, Any]]]:
    """Return a function from values to the objects that the chart makes of them."""

    def objects(values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        answer = helm(
            "template", "mcp2026", str(CHART), "--namespace", NAMESPACE, "--kube-version", "1.34.4",
            *as_flags(values or {}),
        )  # fmt: skip
        assert answer.returncode == 0, answer.stderr
        return [item for item in yaml.safe_load_all(answer.stdout) if item]

    return objects


@pytest.fixture
def namespace(control_plane: Cluster) -> Iterator[str]:
    control_plane.kubectl("create", "namespace", NAMESPACE)
    yield NAMESPACE
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait")


@pytest.fixture
def installed(
    control_plane: Cluster, namespace: str, helm: Callable[..., subprocess.CompletedProcess[str]]
) -> Iterator[str]:
    flags = ("--namespace", namespace, "--kubeconfig", str(control_plane.kubeconfig))
    answer = helm("install", "mcp2026", str(CHART), *flags)
    assert answer.returncode == 0, answer.stderr
    yield namespace
    helm("uninstall", "mcp2026", "--wait", *flags)
