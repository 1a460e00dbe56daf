"""What a cluster says of itself: who holds which GPU, and what may say why a test failed."""

from typing import Any

from tools.cluster import Cluster
from tools.demo.installation import NAMESPACE


def gpus_by_uuid(cluster: Cluster) -> dict[str, dict[str, Any]]:
    (topology,) = cluster.get("gputopologies")["items"]
    return {gpu["uuid"]: gpu for gpu in topology["status"]["gpus"]}


def state_of(cluster: Cluster, namespace: str = "default") -> str:
    asked = [
        ("get", "pods", "--all-namespaces", "-o", "wide"),
        ("describe", "--namespace", namespace, "inferencemodels"),
        ("describe", "--namespace", namespace, "jobs"),
        ("describe", "--namespace", namespace, "pods"),
        ("get", "events", "--all-namespaces"),
        ("logs", "--namespace", NAMESPACE, "deploy/mcp2026-operator", "--tail=40"),
        ("logs", "--namespace", NAMESPACE, "deploy/mcp2026-scheduler", "--all-containers", "--tail=40"),
        ("logs", "--namespace", NAMESPACE, "ds/mcp2026-device-plugin", "--tail=40"),
    ]
    return "\n".join(f"$ kubectl {' '.join(words)}\n{cluster.kubectl(*words)}" for words in asked)
