"""The programs at work with the rights and the configuration that the chart gives them, and no others."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml

from mcp2026.api import names
from mcp2026.scheduler_extender.settings import LEASE_NAME
from tests.cluster.chart.rendering import (
    containers,
)
from tests.loopback import free_port, http_get
from tools.cluster.cluster import Cluster
from tools.cluster.go_programs import program_path

pytestmark = pytest.mark.control_plane


def kubeconfig_of(cluster: Cluster, namespace: str, account: str, folder: Path) -> Path:
    """Write a kubeconfig with a token of a service account: the rights that the program has in its pod."""
    configuration = yaml.safe_load(cluster.kubeconfig.read_text())
    token = cluster.kubectl("create", "token", account, "-n", namespace).strip()
    for user in configuration["users"]:
        user["user"] = {"token": token}
    path = folder / f"{account}.kubeconfig"
    path.write_text(yaml.safe_dump(configuration))
    return path


@contextmanager
def running(command: list[str], log: Path, environment: Mapping[str, str] | None = None) -> Iterator[Path]:
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}
        )
        try:
            yield log
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until(log: Path, holds: Callable[[], bool], what: str, timeout_s: float = 40) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}\n{log.read_text()[-4000:]}"
        time.sleep(0.2)


def test_scheduler_and_extender_work_with_the_rights_and_the_configuration_of_the_chart(
    control_plane: Cluster, installed: str, tmp_path: Path
) -> None:
    """A pod that asks for a GPU gets to the extender, whose answer comes back as the reason on the pod."""
    kubeconfig = kubeconfig_of(control_plane, installed, "mcp2026-scheduler", tmp_path)
    configuration = yaml.safe_load(
        control_plane.get("configmap", "mcp2026-scheduler", "-n", installed)["data"]["scheduler.yaml"]
    )
    extender_port, health_port, secure_port = free_port(), free_port(), free_port()
    # What a machine without pods needs otherwise: a way to the API server, and ports that are free here.
    configuration["clientConnection"] = {"kubeconfig": str(kubeconfig)}
    (extension,) = configuration["extenders"]
    extension["urlPrefix"] = extension["urlPrefix"].replace(str(names.EXTENDER_PORT), str(extender_port))
    file = tmp_path / "scheduler.yaml"
    file.write_text(yaml.safe_dump(configuration))

    deployed = containers(control_plane.get("deployment", "mcp2026-scheduler", "-n", installed))["extender"]
    # In a pod, the name of the host is that of the pod.
    host = socket.gethostname()
    election = [
        flag.replace("$(POD_NAME)", host) for flag in deployed["command"] if flag.startswith("--leader-elect")
    ]
    extender = [
        sys.executable, "-P", "-m", "mcp2026.scheduler_extender", "--port", str(extender_port),
        "--metrics-host", "127.0.0.1", "--metrics-port", str(health_port), "--kubeconfig", str(kubeconfig),
        *election,
    ]  # fmt: skip
    scheduler = [
        str(program_path("kube-scheduler")), f"--config={file}", f"--secure-port={secure_port}",
        "--bind-address=127.0.0.1", f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]  # fmt: skip
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "played"},
        "spec": {"taints": [{"key": "played", "effect": "NoSchedule"}]},
    }
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "10", names.GPU_RESOURCE: "2"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asks", "namespace": installed},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [
                {"name": "main", "image": "none", "resources": {"limits": {names.GPU_RESOURCE: "1"}}}
            ],
            "tolerations": [{"operator": "Exists"}],
        },
    }
    control_plane.apply(node)
    try:
        control_plane.kubectl(
            "patch", "node", "played", "--subresource=status", "--type=merge", "-p",
            json.dumps({"status": {"capacity": capacity, "allocatable": capacity}}),
        )  # fmt: skip
        with (
            running(extender, tmp_path / "extender.log") as extender_log,
            running(scheduler, tmp_path / "scheduler.log") as scheduler_log,
        ):
            until(extender_log, lambda: http_get(health_port, "/readyz")[0] == 200, "the extender")
            assert len(election) == 4

            def leads() -> bool:
                leases = control_plane.get("leases", "-n", installed)["items"]
                holders = {lease["metadata"]["name"]: lease["spec"].get("holderIdentity") for lease in leases}
                return bool(holders.get(names.SCHEDULER_NAME)) and holders.get(LEASE_NAME) == host

            until(scheduler_log, leads, "the Leases of scheduler and extender")
            control_plane.apply(pod)

            def reason() -> str:
                status = control_plane.get("pod", "asks", "-n", installed)["status"]
                return " ".join(condition.get("message", "") for condition in status.get("conditions", []))

            until(scheduler_log, lambda: "GPUTopology" in reason(), "the extender's reason on the pod")
            for log in (extender_log, scheduler_log):
                assert "orbidden" not in log.read_text()
    finally:
        control_plane.kubectl(
            "delete", "pod", "asks", "-n", installed, "--ignore-not-found", "--force", "--grace-period=0"
        )
        control_plane.kubectl("delete", "node", "played")


def test_the_operator_works_with_the_rights_of_the_chart(
    control_plane: Cluster, installed: str, tmp_path: Path
) -> None:
    """An InferenceModel gets all its children, and a status."""
    kubeconfig = kubeconfig_of(control_plane, installed, "mcp2026-operator", tmp_path)
    deployed = containers(control_plane.get("deployment", "mcp2026-operator", "-n", installed))["operator"]
    port = free_port()
    command = [sys.executable, "-P", "-m", "mcp2026.operator", *deployed["command"][1:]]
    model = {
        "apiVersion": names.API_VERSION,
        "kind": names.INFERENCE_MODEL_KIND,
        "metadata": {"name": "resnet50", "namespace": installed},
        "spec": {"versions": [{"versionId": "v1", "weight": 100, "uri": "pvc://models/resnet50.onnx"}]},
    }
    operator = [*command, f"--liveness-port={port}"]
    with running(operator, tmp_path / "operator.log", {"KUBECONFIG": str(kubeconfig)}) as log:
        until(log, lambda: http_get(port, "/healthz")[0] == 200, "the operator's liveness")
        control_plane.apply(model)
        children = ("deployments", "services", "configmaps", "serviceaccounts", "roles", "rolebindings")

        def has(kind: str) -> bool:
            label = f"{names.MODEL_LABEL}=resnet50"
            return bool(control_plane.get(kind, "-n", installed, "-l", label)["items"])

        def lacks(kind: str) -> bool:
            return not has(kind)

        for kind in children:
            until(log, partial(has, kind), f"a child of {kind}")

        def phase() -> str:
            status = control_plane.get("inferencemodel", "resnet50", "-n", installed).get("status", {})
            return str(status.get("phase", ""))

        until(log, lambda: phase() == "Pending", "a status")
        control_plane.kubectl("delete", "inferencemodel", "resnet50", "-n", installed)
        for kind in children:
            until(log, partial(lacks, kind), f"no child of {kind}")
        assert "orbidden" not in log.read_text()
