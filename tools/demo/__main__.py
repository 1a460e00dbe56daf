"""`python -m tools.demo`: one request through everything, on a real Kubernetes on this machine."""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from mcp2026.api.names import GPU_UUIDS_VARIABLE, REST_PORT
from tools.cluster import Cluster, Level, up
from tools.cluster.errors import ClusterError
from tools.cluster.go_programs import program_path
from tools.cluster.progress import Report
from tools.cluster.requirements import prepare
from tools.demo.inference import TOLERANCE, infer, is_ready, random_images, run_directly
from tools.demo.installation import ROOT, install, provide_models, sample_model

MACHINE = ROOT / "tests" / "topologies" / "4xa100-pcie-nvlink-pairs.yaml"
EXAMPLE = ROOT / "examples" / "resnet50.yaml"


def main() -> int:
    """Run the demo; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster and the model running")
    parser.add_argument("--name", default="demo", help="name of the cluster (default: demo)")
    parser.add_argument("--machine", type=Path, default=MACHINE, help="YAML of the node's GPUs")
    options = parser.parse_args()
    started = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - started:4.0f} s] {line}", file=sys.stderr, flush=True)

    try:
        if missing := prepare(Level.NODE, say):
            print(f"a node cannot be had here, for this machine lacks: {'; '.join(missing)}", file=sys.stderr)
            return 1
        model = sample_model("resnet50")
        cluster = up(options.name, Level.NODE, owned=not options.keep, report=say)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        correct = demonstrate(cluster, options.machine, model, say)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if not options.keep:
            say("taking the cluster down")
            cluster.down()
    if options.keep:
        print(
            f"\nIt goes on running; the claim models is the folder {model.parent}",
            f"use it:  export KUBECONFIG={cluster.kubeconfig} PATH={program_path('kubectl').parent}:$PATH",
            f"end it:  {sys.executable} -m tools.cluster down --name {cluster.name}",
            sep="\n",
        )
    return 0 if correct else 1


def demonstrate(cluster: Cluster, machine: Path, model: Path, say: Report) -> bool:
    """Install, apply, infer, show; return whether the answer was what ONNX Runtime gives directly."""
    install(cluster, machine, say)
    provide_models(cluster, model.parent)
    say("kubectl apply -f examples/resnet50.yaml")
    cluster.kubectl("apply", "-f", str(EXAMPLE))
    cluster.wait("inferencemodel/resnet50", "condition=Ready", timeout_s=180)
    rows = random_images(2)
    service = cluster.get("service", "resnet50")["spec"]["clusterIP"]
    address = f"{service}:{REST_PORT}"
    cluster.wait_for(f"the Service to answer at {address}", lambda: is_ready(address))
    say(f"POST http://{address}/v1/infer")
    answer, expected = infer(address, rows), run_directly(model, rows)
    correct = bool(np.allclose(answer, expected, rtol=TOLERANCE, atol=TOLERANCE))
    gpus = cluster.kubectl("exec", "deploy/resnet50", "--", "printenv", GPU_UUIDS_VARIABLE).strip()
    print("\n$ kubectl get pods --all-namespaces -o wide")
    print(cluster.kubectl("get", "pods", "--all-namespaces", "-o", "wide"))
    print("$ kubectl get gputopologies -o wide")
    print(cluster.kubectl("get", "gputopologies", "-o", "wide"))
    print("$ kubectl get inferencemodels -o wide")
    print(cluster.kubectl("get", "inferencemodels", "-o", "wide"))
    print("$ kubectl describe inferencemodel resnet50")
    print(cluster.kubectl("describe", "inferencemodel", "resnet50"))
    print(f"GPUs in the container: {gpus}")
    difference = float(np.abs(answer - expected).max())
    verdict = "as ONNX Runtime answers directly" if correct else "NOT what ONNX Runtime answers directly"
    print(f"output {list(answer.shape)}: {verdict} (largest difference {difference:.2g})")
    return correct


if __name__ == "__main__":
    sys.exit(main())
