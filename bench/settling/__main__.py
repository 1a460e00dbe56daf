"""`python -m bench.settling`: from `kubectl apply` of new weights to TrafficSettled, on many pods.

A real API server, the operator with the rights of the chart, some real runtime processes, and for the other
pods followers that load nothing (a machine with two cores has no room for fifty servers).
"""

import argparse
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, watch

from bench.settling.followers import SimulatedPods
from bench.settling.installed_operator import installed_chart, running_operator
from bench.settling.played_node import PlayedNode, lacking
from mcp2026.api.conditions import ConditionType
from mcp2026.api.names import GROUP, INFERENCE_MODEL_PLURAL, SERVING_CONFIG_KEY, VERSION
from mcp2026.operator.observed import condition_of
from tools.cluster.bring_up import up
from tools.cluster.cluster import Cluster
from tools.cluster.levels import Level
from tools.models import generate

SYSTEM, NAMESPACE, MODEL = "settling-system", "settling", "settling"
GOAL_SECONDS = 2.0
PATIENCE_SECONDS = 120


def manifest(replicas: int, canary: int) -> str:
    """Return the model with so many percent for its second version."""
    versions = [
        {"versionId": "v1", "uri": "pvc://models/add.onnx", "weight": 100 - canary},
        {"versionId": "v2", "uri": "pvc://models/add-hundred.onnx", "weight": canary},
    ]
    spec = {"versions": versions, "replicas": replicas, "gpu": {"count": 1}}
    metadata = {"name": MODEL, "namespace": NAMESPACE}
    kind = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "InferenceModel"}
    return yaml.safe_dump({**kind, "metadata": metadata, "spec": spec})


def settled(cluster: Cluster, generation: int) -> None:
    """Return as soon as TrafficSettled is True for this generation; raises TimeoutError."""
    api = client.CustomObjectsApi(cluster.client())
    place = (GROUP, VERSION, NAMESPACE, INFERENCE_MODEL_PLURAL)
    events = watch.Watch().stream(  # type: ignore[no-untyped-call]  # untyped
        api.list_namespaced_custom_object, *place, timeout_seconds=PATIENCE_SECONDS
    )
    for event in events:
        condition = condition_of(event["object"], ConditionType.TRAFFIC_SETTLED)
        if condition.get("status") == "True" and condition["observedGeneration"] >= generation:
            return
    raise TimeoutError(f"not settled after {PATIENCE_SECONDS} s")


def identity(cluster: Cluster, node: PlayedNode, replicas: int) -> Any:
    """Return what no change of weights may touch."""
    pods = sorted(pod["metadata"]["uid"] for pod in node.pods(MODEL, replicas))
    deployment = cluster.get("deployment", MODEL, "-n", NAMESPACE)
    return pods, deployment["metadata"]["generation"], [p.process.poll() for p in node.running.values()]


def measure(cluster: Cluster, folder: Path, processes: int, followers: int, rounds: int) -> int:
    """Print the time of each round; return 0 if the median keeps to the goal."""
    replicas = processes + followers
    claims = folder / "claims"
    for name in ("add", "add-hundred"):
        generate(name, claims / "models")
    cluster.kubectl("create", "namespace", NAMESPACE)
    with ExitStack() as stack:
        stack.enter_context(installed_chart(cluster, SYSTEM))
        stack.enter_context(running_operator(cluster, SYSTEM, NAMESPACE, folder))
        node = stack.enter_context(PlayedNode(cluster, NAMESPACE, claims, folder))
        cluster.apply(manifest(replicas, 10))
        pods = node.pods(MODEL, replicas)
        config_map = f"{MODEL}-serving"
        document = cluster.get("configmap", config_map, "-n", NAMESPACE)["data"][SERVING_CONFIG_KEY]
        simulated = stack.enter_context(SimulatedPods(config_map, document.encode()))
        for pod in pods[:processes]:
            node.serve(pod)
        for pod in pods[processes:]:
            simulated.add(pod, node.credentials(node.token(pod)))
            node.tell_ready(pod)
        settled(cluster, 1)
        before = identity(cluster, node, replicas)
        print(f"{processes} runtime processes and {followers} simulated pods", flush=True)
        times = []
        for number in range(rounds):
            text = manifest(replicas, 20 + number)
            started = time.monotonic()
            cluster.apply(text)
            applied = time.monotonic()
            settled(cluster, number + 2)
            ended = time.monotonic()
            times.append(ended - started)
            print(
                f"change {number + 1}: settled {times[-1]:.2f} s after kubectl apply began, "
                f"{ended - applied:.2f} s after it had ended",
                flush=True,
            )
        if identity(cluster, node, replicas) != before:
            print("a pod, a process or the Deployment's template was replaced", file=sys.stderr)
            return 1
    median = statistics.median(times)
    print(f"median {median:.2f} s, longest {max(times):.2f} s; goal: less than {GOAL_SECONDS:g} s")
    return int(median >= GOAL_SECONDS)


def main() -> int:
    """Measure once."""
    parser = argparse.ArgumentParser(prog="python -m bench.settling", description=__doc__)
    parser.add_argument("--processes", type=int, default=10, help="pods that are real servers (%(default)s)")
    parser.add_argument("--followers", type=int, default=40, help="pods that load nothing (%(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="changes of weights (%(default)s)")
    given = parser.parse_args()
    if problem := lacking():
        print(f"bench.settling: no process may have its own mounts here: {problem}", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="mcp2026-settling-") as folder,
        up("settling", Level.CONTROL_PLANE, owned=True) as cluster,
    ):
        return measure(cluster, Path(folder), given.processes, given.followers, given.rounds)


if __name__ == "__main__":
    sys.exit(main())
