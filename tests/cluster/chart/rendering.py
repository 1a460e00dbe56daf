"""What the chart makes of values, and how to find one object in it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "mcp2026"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
NAMESPACE = "mcp2026-system"
NOBODY = 65532

EVERYTHING_SET: dict[str, Any] = {
    "image": {
        "registry": "images.example",
        "digest": f"sha256:{'0' * 64}",
        "pullPolicy": "Never",
        "pullSecrets": [{"name": "s"}],
    },
    "logFormat": "text",
    "operator": {
        "watchNamespaces": ["default", "kube-public"],
        "runtimeImage": "runtime:1",
        "extraEnv": [{"name": "A", "value": "1"}],
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "priorityClassName": "",
    },
    "scheduler": {
        "replicas": 2,
        "extenderTimeout": "500ms",
        "extender": {"extraEnv": [{"name": "B", "value": "2"}]},
    },
    "devicePlugin": {
        "runtimeClassName": "nvidia",
        "passDeviceNodes": True,
        "deviceListStrategy": ["envvar", "cdi-cri"],
        "driverLibraries": "/opt/driver/lib",
        "configuration": {
            "sharing": {"mode": "TimeSlice", "replicas": 4},
            "nodes": {"node-7": {"gpus": [{"index": 0, "sharing": {"mode": "MPS", "unit": "Memory"}}]}},
            "health": {"ignoredXids": [94], "taintWhen": "All"},
        },
        "mig": True,
        "mps": True,
        "updateStrategy": "OnDelete",
        "failOnNoGpus": True,
        "extraVolumes": [{"name": "driver", "hostPath": {"path": "/opt/driver"}}],
        "extraVolumeMounts": [{"name": "driver", "mountPath": "/opt/driver", "readOnly": True}],
        "extraEnv": [{"name": "LD_LIBRARY_PATH", "value": "/opt/driver"}],
        "maxUnavailable": 2,
    },
}
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything set": EVERYTHING_SET,
    "operator alone": {"scheduler": {"enabled": False}, "devicePlugin": {"enabled": False}},
    "scheduler alone": {"operator": {"enabled": False}, "devicePlugin": {"enabled": False}},
    "device plugin alone": {
        "operator": {"enabled": False},
        "scheduler": {"enabled": False},
        "devicePlugin": {"resourcePrefix": "nvidia.com"},
    },
}


def as_flags(values: Mapping[str, Any]) -> list[str]:
    return [word for key, value in values.items() for word in ("--set-json", f"{key}={json.dumps(value)}")]


def by_kind(objects: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    """Return the one object of this kind whose name ends with `name`; empty: whose kind is there once."""
    (found,) = [item for item in objects if item["kind"] == kind and item["metadata"]["name"].endswith(name)]
    return found


def containers(workload: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {container["name"]: container for container in workload["spec"]["template"]["spec"]["containers"]}
