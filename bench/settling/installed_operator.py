"""The chart on a control plane, and the operator as a process with the rights that the chart gives it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from mcp2026.api.names import MANAGED_BY
from tools.cluster.cluster import Cluster
from tools.cluster.go_programs import build

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "mcp2026"
_END_SECONDS = 30


@contextmanager
def installed_chart(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Install custom resources, rights and admission policy; there is no node that would run the programs."""
    build("helm")
    place = ("--namespace", namespace, "--create-namespace")
    cluster.helm("install", "mcp2026", str(CHART), *place)
    try:
        yield
    finally:
        cluster.helm("uninstall", "mcp2026", "--wait", "--namespace", namespace)
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")


@contextmanager
def running_operator(
    cluster: Cluster, namespace: str, watched: str, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the operator of the chart in `namespace` for the models in `watched`; its log is in `folder`."""
    credentials = yaml.safe_load(cluster.kubeconfig.read_text())
    token = cluster.kubectl("create", "token", MANAGED_BY, "-n", namespace).strip()
    for user in credentials["users"]:
        user["user"] = {"token": token}
    kubeconfig = folder / "operator.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(credentials))
    arguments = ("--runtime-image", "registry.example/mcp2026:1", "--liveness-port", "0")
    with (folder / "operator.log").open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "mcp2026.operator", *arguments, "--namespace", watched],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stdout=sink,
            stderr=sink,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(_END_SECONDS)
