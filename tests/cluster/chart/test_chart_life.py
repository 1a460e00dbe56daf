"""The chart on a real API server: what it installs, upgrades to, and leaves behind."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from mcp2026.api import names
from tests.cluster.chart.rendering import CHART, EVERYTHING_SET, as_flags, containers
from tools.cluster.cluster import Cluster

pytestmark = pytest.mark.control_plane


def test_install_upgrade_and_removal(
    control_plane: Cluster,
    namespace: str,
    helm: Callable[..., subprocess.CompletedProcess[str]],
    render: Callable[..., list[dict[str, Any]]],
) -> None:
    flags = ("--namespace", namespace, "--kubeconfig", str(control_plane.kubeconfig))

    def there(objects: list[dict[str, Any]]) -> list[str]:
        text = control_plane.kubectl(
            "get", "--ignore-not-found", "-o", "name", "-f", "-", input=yaml.safe_dump_all(objects)
        )
        return sorted(text.split())

    answer = helm("install", "mcp2026", str(CHART), *flags)
    assert answer.returncode == 0, answer.stderr
    assert "rollout status deployment/mcp2026-operator" in answer.stdout
    assert len(there(render())) == len(render())
    for plural in (names.INFERENCE_MODEL_PLURAL, names.GPU_TOPOLOGY_PLURAL):
        control_plane.wait(f"crd/{plural}.{names.GROUP}", "condition=Established")
    priority = control_plane.get("priorityclass", names.PRIORITY_CLASS_HIGH)
    assert priority["value"] == names.PRIORITY_CLASS_HIGH_VALUE
    assert not priority.get("globalDefault", False)

    second = helm(
        "install",
        "again",
        str(CHART),
        "--namespace",
        "default",
        "--kubeconfig",
        str(control_plane.kubeconfig),
    )
    assert second.returncode == 1
    assert "cannot be imported into the current release" in second.stderr

    answer = helm("upgrade", "mcp2026", str(CHART), *flags, *as_flags(EVERYTHING_SET))
    assert answer.returncode == 0, answer.stderr
    assert len(there(render(EVERYTHING_SET))) == len(render(EVERYTHING_SET))
    operator = control_plane.get("deployment", "mcp2026-operator", "-n", namespace)
    assert "--namespace=kube-public" in containers(operator)["operator"]["command"]
    bindings = control_plane.get("clusterrolebindings", "-l", "app.kubernetes.io/component=operator")
    assert bindings["items"] == []

    answer = helm(
        "upgrade", "mcp2026", str(CHART), *flags, "--set", "scheduler.enabled=false", "--reset-values"
    )
    assert answer.returncode == 0, answer.stderr
    assert (
        control_plane.get("deployments", "-n", namespace)["items"][0]["metadata"]["name"]
        == "mcp2026-operator"
    )
    assert there(render()) == there(render({"scheduler": {"enabled": False}}))

    answer = helm("uninstall", "mcp2026", "--wait", *flags)
    assert answer.returncode == 0, answer.stderr
    assert there([*render(), *render(EVERYTHING_SET)]) == []
    kinds = "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,priorityclasses,"
    kinds += "validatingadmissionpolicies,validatingadmissionpolicybindings,"
    kinds += "deployments,daemonsets,configmaps,poddisruptionbudgets,pods"
    left = control_plane.get(kinds, "--all-namespaces", "-l", "app.kubernetes.io/part-of=mcp2026")["items"]
    assert left == []
    kept = control_plane.kubectl("get", "crd", "-o", "name")
    assert f"{names.INFERENCE_MODEL_PLURAL}.{names.GROUP}" in kept
