"""The extender reserves the MIG devices that the node's device plugin would choose in the same state."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mcp2026.api.gpu_assignment import GpuAssignment, format_gpu_assignment
from mcp2026.api.gpu_devices import DeviceKind, mig_resource
from mcp2026.api.gpu_sharing import Sharing
from mcp2026.api.gpu_topology import Holder
from mcp2026.api.names import GPU_ASSIGNMENT_ANNOTATION
from mcp2026.device_plugin.devices import CurrentSharing, GpuCondition, Holding, Snapshot
from mcp2026.device_plugin.preference import preferred_devices
from mcp2026.device_plugin.reservations import Reservation
from mcp2026.device_plugin.topology_status import status_resource, topology_status
from mcp2026.scheduler_extender.choosing import assignment_for
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import NodeGpus
from mcp2026.topology.machine import machine_from_file
from mcp2026.topology.mig.tables import A100_80
from tests.fakes.clusters import TOPOLOGIES, filled_cache, pod
from tests.fakes.mig_layouts import cut_gpus

MACHINE = machine_from_file(TOPOLOGIES / "4xa100-pcie-nvlink-pairs.yaml")
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@st.composite
def nodes(draw: st.DrawFn) -> Snapshot:
    """A node as its plugin sees it: cut at random, devices held and promised, a GPU sick."""
    instances = {
        MACHINE.gpus[place].uuid: gpu.instances
        for place, gpu in draw(cut_gpus(A100_80, len(MACHINE.gpus))).items()
    }
    profile_of = {each.uuid: each.profile for those in instances.values() for each in those}
    given_away = draw(st.lists(st.sampled_from(sorted(profile_of)), unique=True, max_size=12))
    shown = draw(st.integers(0, len(given_away)))
    holdings = {
        uuid: Holding(mig_resource(profile_of[uuid]), Holder("default", f"holds-{uuid}".lower(), "main"))
        for uuid in given_away[:shown]
    }
    promises = tuple(
        Reservation(
            "default",
            f"waits-{uuid}".lower(),
            f"uid-{uuid}",
            "2026-11-30T10:00:00Z",
            {"main": {mig_resource(profile_of[uuid]): (uuid,)}},
        )
        for uuid in given_away[shown:]
    )
    health = {
        uuid: GpuCondition(draw(st.sampled_from(["Degraded", "Unhealthy"])), "TooHot", "it is too hot")
        for uuid in draw(st.lists(st.sampled_from(sorted(instances)), unique=True, max_size=2))
    }
    return Snapshot(
        MACHINE,
        conditions=health,
        sharing=dict.fromkeys(instances, CurrentSharing(Sharing("MIG"))),
        holdings=holdings,
        holdings_known=True,
        mig_instances=instances,
        reservations=promises,
    )


def seen_by_the_extender(node: Snapshot) -> NodeGpus:
    """What the extender makes of the GPUTopology that the plugin writes, and of the pods of the node."""
    topology = status_resource("n", topology_status(node, (), NOW)) | {"metadata": {"name": "n"}}
    holders = [holding.holder.pod for holding in node.holdings.values() if holding.holder]
    waiting = []
    for each in node.reservations:
        waiting.append(_asking(each.pod, each.assignment))
        annotations = {GPU_ASSIGNMENT_ANNOTATION: format_gpu_assignment(each.assignment)}
        waiting[-1]["metadata"]["annotations"] = annotations
    snapshot = filled_cache([topology], [*(pod(name, 0, "n") for name in holders), *waiting]).snapshot()
    gpus = snapshot.nodes["n"].gpus
    assert gpus is not None
    return gpus


def _asking(name: str, assignment: GpuAssignment) -> dict[str, Any]:
    asked = {resource: str(len(devices)) for resource, devices in assignment["main"].items()}
    document = pod(name, 0, "n")
    document["spec"]["containers"] = [{"name": "main", "resources": {"requests": asked, "limits": asked}}]
    return document


@settings(max_examples=300, deadline=None)
@given(nodes(), st.data())
def test_both_choose_the_same_devices(node: Snapshot, data: st.DataObject) -> None:
    profile_of = {each.uuid: each.profile for those in node.mig_instances.values() for each in those}
    resource = mig_resource(data.draw(st.sampled_from(sorted(set(profile_of.values())))))
    size = data.draw(st.integers(1, 3))
    promised = [each.assignment["main"] for each in node.reservations]
    # The kubelet's question names no pod: one for as much as was promised to another gets what was promised.
    assume(size != 1 or all(resource not in given for given in promised))
    gpus = seen_by_the_extender(node)
    demand = Demand(resource, DeviceKind.MIG, size, (("main", size),))
    assume(gpus.fits(demand))
    available = [
        uuid
        for uuid, profile in profile_of.items()
        if mig_resource(profile) == resource
        and uuid not in node.holdings
        and node.gpu_of(uuid) not in node.unhealthy
    ]

    reserved = assignment_for(gpus, (demand,), ScoreMemo())["main"][resource]
    preferred = preferred_devices(node, resource, available, [], size)

    assert preferred.kind == "scored"
    assert preferred.devices == reserved
