"""`python -m bench.scheduling`: thousands of played nodes, a real kube-scheduler, without and with extender.

On one control plane: half of the pods through kube-scheduler alone, all of them through kube-scheduler with
the extender, the other half alone, and all once more while the extender is killed again and again.
"""

import argparse
import asyncio
import shlex
import subprocess
import sys
import time
from pathlib import Path

from bench.errors import BenchError
from bench.machine import this_machine
from bench.peers.peer import ROOT
from bench.scheduling.api_server import TOPOLOGIES
from bench.scheduling.bars import Figures, all_met, table
from bench.scheduling.run import Run
from tools.cluster.bring_up import up
from tools.cluster.control_plane import ControlPlaneOptions
from tools.cluster.errors import ClusterError
from tools.cluster.levels import Level
from tools.cluster.progress import Report

QUIET = {
    "kube-apiserver": ["--disable-admission-plugins=TaintNodesByCondition"],
    "kube-controller-manager": ["--node-monitor-grace-period=2h"],
    "kwok": ["--node-lease-duration-seconds=1200"],
}
"""Nodes come Ready and stay so without a word: 5,000 leases renewed every 10 s would be 500 writes a second,
on the cores that are to be measured."""


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.scheduling", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--nodes", type=int, default=5_000, help="played nodes [%(default)s]")
    parser.add_argument("--pods", type=int, default=2_000, help="pods in each phase [%(default)s]")
    parser.add_argument("--kills", type=int, default=10, help="restarts of the extender [%(default)s]")
    parser.add_argument(
        "--nodes-to-score",
        type=int,
        metavar="N",
        help="let the extender hand on the best N nodes only (all)",
    )
    parser.add_argument(
        "--extender-niceness",
        type=int,
        default=0,
        metavar="N",
        help="-12 lets the extender go first, as if it had a core of its own; needs root [%(default)s]",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "build" / "bench" / "scheduling",
        help="folder of figures.json, table.md and the programs' logs [%(default)s]",
    )
    given = parser.parse_args()
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"==> {time.monotonic() - began:5.0f} s  {text}", file=sys.stderr, flush=True)

    figures = Figures(
        machine=this_machine(),
        commit=_commit(),
        command=shlex.join(["python", "-m", "bench.scheduling", *sys.argv[1:]]),
        nodes=given.nodes,
        pods=given.pods,
        kills=given.kills,
    )
    options = ControlPlaneOptions(scheduler=False, extra_arguments=QUIET)
    given.output.mkdir(parents=True, exist_ok=True)
    failed = ""
    try:
        _measure(figures, options, given, say)
    except* (BenchError, ClusterError) as problems:
        failed = "; ".join(map(str, problems.exceptions))
    print(table(figures))
    if failed:
        print(f"bench.scheduling: {failed}", file=sys.stderr)
    return 1 if failed or not all_met(figures) else 0


def _measure(figures: Figures, options: ControlPlaneOptions, given: argparse.Namespace, say: Report) -> None:
    folder: Path = given.output
    with up("bench-scheduling", Level.KWOK, options=options, owned=True, kwok_nodes=0, report=say) as cluster:
        cluster.apply((ROOT / "crds" / "gputopologies.yaml").read_text())
        cluster.wait_for(
            "GPUTopologies to be served", lambda: cluster.kubectl("get", "--raw", TOPOLOGIES), 180
        )
        try:
            asyncio.run(
                Run(cluster, figures, folder, say, given.nodes_to_score, given.extender_niceness).measure()
            )
        finally:
            cluster.save_logs(folder / "logs")


def _commit() -> str:
    asked = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
