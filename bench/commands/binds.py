"""`binds`: many calls of bind at once, for one node."""

import argparse
import asyncio
import sys

from bench.binds import ALL_SHARES, BAR_S, BindTimes, measure_binds
from bench.commands.options import Commands, positive
from bench.scheduling.figures import percentile
from bench.scheduling.workload import TOPOLOGIES as MACHINES
from tools.cluster.bring_up import up
from tools.cluster.control_plane import ControlPlaneOptions
from tools.cluster.levels import Level


def add_commands(commands: Commands) -> None:
    """Add the command."""
    binds = commands.add_parser(
        "binds",
        help="calls of the scheduler extender's bind, all at once and for one node",
        description=f"Call bind for many pods at once, for one node of {ALL_SHARES} GPU shares: the real "
        "extender, as the leader of an election, at a real API server. Ends with 1 if a call took "
        f"{BAR_S:g} s, failed, or sold a share twice.",
    )
    binds.add_argument(
        "--pods", type=positive, default=100, help=f"at once, up to {ALL_SHARES} (%(default)s)"
    )
    binds.add_argument("--rounds", type=positive, default=5, help="of each kind (%(default)s)")
    binds.set_defaults(run=_binds)


def _binds(parsed: argparse.Namespace) -> int:
    if parsed.pods > ALL_SHARES:
        print(f"bench binds: --pods: {parsed.pods} do not fit; allowed: up to {ALL_SHARES}", file=sys.stderr)
        return 2

    def say(text: str) -> None:
        print(f"==> {text}", file=sys.stderr, flush=True)

    options = ControlPlaneOptions(scheduler=False)
    with up("bench-binds", Level.CONTROL_PLANE, options=options, owned=True, report=say) as cluster:
        cluster.apply((MACHINES.parents[1] / "crds" / "gputopologies.yaml").read_text())
        cluster.wait_for("the definition of GPUTopology", lambda: cluster.get("gputopologies"))
        rounds = asyncio.run(measure_binds(cluster, parsed.pods, parsed.rounds, say))
    print(f"{parsed.pods} calls of bind at once for one node; ms")
    print("| way | p50 | p99 | longest | refused | sold twice |")
    print("| --- | --- | --- | --- | --- | --- |")
    for each in rounds:
        print("|", " | ".join(_row(each)), "|")
    return 0 if all(each.within_bar for each in rounds) else 1


def _row(times: BindTimes) -> tuple[str, ...]:
    p50, p99 = (f"{percentile(times.seconds, fraction) * 1e3:.0f}" for fraction in (0.5, 0.99))
    longest = f"{times.seconds[-1] * 1e3:.0f}"
    return (times.way, p50, p99, longest, str(len(times.errors)), str(times.doubles))
