"""Installs MCP 2026 by its Helm chart on a cluster with one real node, whose GPUs are those of a file.

The chart and the image are the ones that users get. What stands in for hardware enters from outside, through
the chart's own values: the fake `libnvidia-ml.so.1` of `tests/fakes/nvml` is mounted where a driver would be.
"""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mcp2026.api.names import GPU_RESOURCE
from tests.fakes.nvml import FakeNvml
from tools.cluster import Cluster
from tools.cluster.cache import cache_folder, content_key, folder_contents
from tools.cluster.images import build_image, scheduler_image
from tools.cluster.node import load_image
from tools.cluster.progress import Report, to_stderr
from tools.models import generate

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "mcp2026"
WHEELS = ROOT / "build" / "wheels"
NAMESPACE = "mcp2026-system"
IMAGE = "localhost/mcp2026:dev"
DRIVER = "/opt/driver"
"""Where the folder of the fake driver is mounted in the device plugin's container."""


@dataclass(frozen=True)
class Installation:
    """MCP 2026 as it runs on `cluster`; `nvml` changes the node's GPUs while it runs."""

    cluster: Cluster
    nvml: FakeNvml

    def uninstall(self) -> None:
        """Remove the release and its CRDs."""
        self.cluster.helm("uninstall", "mcp2026", "--namespace", NAMESPACE, "--wait")
        crds = ("inferencemodels.mcp2026.io", "gputopologies.mcp2026.io")
        self.cluster.kubectl("delete", "crd", *crds, "--wait=true")
        self.cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=true")


def install(
    cluster: Cluster,
    machine: Path,
    report: Report = to_stderr,
    plugin_configuration: Mapping[str, Any] | None = None,
) -> Installation:
    """Bring images and chart onto the cluster; return when the node offers the GPUs of `machine`.

    `plugin_configuration` is the device plugin's own: by default it is empty.
    """
    load_image(cluster, product_image(report))
    load_image(cluster, scheduler_image(report))
    nvml = FakeNvml(cluster.folder / "driver", machine)
    for path in (nvml.directory, *nvml.directory.iterdir()):
        path.chmod(0o755)
    values = cluster.folder / "values.yaml"
    values.write_text(yaml.safe_dump(chart_values(nvml, plugin_configuration)))
    report("installing the chart")
    place = ["--namespace", NAMESPACE, "--create-namespace", "--values", str(values)]
    cluster.helm("install", "mcp2026", str(CHART), *place, "--wait", "--timeout", "3m")
    gpus = len(yaml.safe_load(machine.read_text())["gpus"])
    cluster.wait_for(f"the node to offer {gpus} GPUs", lambda: _allocatable_gpus(cluster) == gpus)
    return Installation(cluster, nvml)


def sample_model(name: str) -> Path:
    """Return the file of a sample model, cached outside the repository until its generator changes."""
    sources = folder_contents(ROOT / "tools" / "models")
    return generate(name, cache_folder() / "models" / content_key(sources))


def product_image(report: Report = to_stderr) -> Path:
    """Return the archive of the product's image, built from this checkout."""
    report("collecting the wheels of the image")
    script = ROOT / "deploy" / "images" / "build_wheels.py"
    subprocess.run([sys.executable, str(script), "--output", str(WHEELS)], check=True, stdout=sys.stderr)
    return build_image(ROOT / "deploy" / "images" / "Containerfile", WHEELS, IMAGE, report=report)


def chart_values(nvml: FakeNvml, plugin_configuration: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the values with which the chart runs from images that were loaded by hand."""
    repository, _, tag = IMAGE.rpartition(":")
    driver = str(nvml.directory)
    inside = {
        name: value.replace(driver, DRIVER)
        for name, value in nvml.environment.items()
        if name != "FAKE_NVML_CALLS"
    }
    return {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "logFormat": "json",
        "scheduler": {
            "image": {"repository": "localhost/kube-scheduler", "tag": "v1.34.4", "pullPolicy": "Never"},
            "command": ["/kube-scheduler"],
        },
        "devicePlugin": {
            "configuration": dict(plugin_configuration or {}),
            "extraVolumes": [{"name": "driver", "hostPath": {"path": driver, "type": "Directory"}}],
            "extraVolumeMounts": [{"name": "driver", "mountPath": DRIVER, "readOnly": True}],
            "extraEnv": [{"name": name, "value": value} for name, value in inside.items()],
        },
    }


def provide_models(cluster: Cluster, folder: Path, namespace: str = "default") -> None:
    """Make the claim `models` in `namespace`, bound to a volume with the files of `folder` on the node."""
    provide_claim(cluster, "models", folder, namespace)


def provide_claim(
    cluster: Cluster, name: str, folder: Path, namespace: str = "default", *, writable: bool = False
) -> None:
    """Make the claim `name` in `namespace`, bound to a volume that is `folder` on the node.

    The kubelet leaves the owner of such a folder alone, so a writable one has to let the pods write.
    """
    source = {"hostPath": {"path": str(folder), "type": "Directory"}}
    shape = {"accessModes": ["ReadWriteOnce" if writable else "ReadOnlyMany"], "storageClassName": ""}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{name}-{namespace}"},
        "spec": {
            **shape,
            **source,
            "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace, "name": name},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            **shape,
            "volumeName": f"{name}-{namespace}",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    cluster.apply(volume, claim)
    cluster.wait(f"pvc/{name}", "jsonpath={.status.phase}=Bound", namespace=namespace)


def _allocatable_gpus(cluster: Cluster) -> int:
    (node,) = cluster.get("nodes")["items"]
    return int(node["status"]["allocatable"].get(GPU_RESOURCE, 0))
