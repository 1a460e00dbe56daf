"""What the kubelet may give away of each resource, over all that a node can be."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp2026.api.gpu_devices import LONGEST_DEVICE_ID, parse_device_id
from mcp2026.api.gpu_sharing import Sharing, SharingState
from mcp2026.api.names import GPU_MEMORY_RESOURCE, GPU_RESOURCE, GPU_SHARED_RESOURCE
from mcp2026.device_plugin.adapters.plugin_server import device_list_message
from mcp2026.device_plugin.devices import CurrentSharing, GpuCondition, Holding, Snapshot
from mcp2026.device_plugin.offers import offers
from mcp2026.topology.machine import Machine, machine_from_file
from mcp2026.topology.mig.geometry import MigInstance

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
PAIRS = machine_from_file(TOPOLOGIES / "4xa100-pcie-nvlink-pairs.yaml")
UUIDS = [gpu.uuid for gpu in PAIRS.gpus]
LARGEST_MESSAGE = 4 * 1024 * 1024
"""Bytes; gRPC's default, which the kubelet keeps."""


def instance(gpu: int, number: int, profile: str = "1g.10gb") -> MigInstance:
    uuid = f"MIG-{gpu:08d}-0000-4000-8000-{number:012d}"
    return MigInstance(uuid, profile, number, 1, number, 0, 9856)


def ids(snapshot: Snapshot) -> dict[str, list[str]]:
    return {resource: [device.id for device in devices] for resource, devices in offers(snapshot).items()}


def one(sharing: Sharing, state: SharingState = "Active", **fields: object) -> Snapshot:
    """A node whose first GPU is shared by `sharing`."""
    snapshot = Snapshot(PAIRS, sharing={UUIDS[0]: CurrentSharing(sharing, state)})
    return replace(snapshot, **fields)  # type: ignore[arg-type]  # as a test names them


def test_each_mode_is_sold_under_its_own_name() -> None:
    snapshot = Snapshot(
        PAIRS,
        sharing={
            UUIDS[1]: CurrentSharing(Sharing("TimeSlice", replicas=2)),
            UUIDS[2]: CurrentSharing(Sharing("MPS", unit="Memory")),
            UUIDS[3]: CurrentSharing(Sharing("MIG", mig_layout=("1g.10gb", "1g.10gb+me"))),
        },
        mig_instances={UUIDS[3]: (instance(3, 0), instance(3, 1, "1g.10gb+me"))},
    )
    found = ids(snapshot)
    gib = PAIRS.gpus[2].memory_mib // 1024
    assert found == {
        GPU_RESOURCE: [UUIDS[0]],
        GPU_SHARED_RESOURCE: [f"{UUIDS[1]}::0", f"{UUIDS[1]}::1"],
        GPU_MEMORY_RESOURCE: [f"{UUIDS[2]}::m{number}" for number in range(gib)],
        "mcp2026.io/mig-1g.10gb": [instance(3, 0).uuid],
        "mcp2026.io/mig-1g.10gb.me": [instance(3, 1).uuid],
    }


@pytest.mark.parametrize(
    ("state", "held", "expected"),
    [
        pytest.param("Active", [], ["::0", "::1"], id="active: all"),
        pytest.param("Draining", ["::1"], ["::1"], id="draining: what is held stays"),
        pytest.param("Draining", [], [], id="draining: what is free leaves"),
        pytest.param("Changing", ["::1"], [], id="changing: none"),
        pytest.param("Failed", [], [], id="failed: none"),
    ],
)
def test_a_change_takes_free_devices_off_the_list(
    state: SharingState, held: list[str], expected: list[str]
) -> None:
    holdings = {UUIDS[0] + part: Holding(GPU_SHARED_RESOURCE) for part in held}
    snapshot = one(Sharing("TimeSlice", replicas=2), state, holdings=holdings)
    found = ids(snapshot)
    assert found.get(GPU_SHARED_RESOURCE, []) == [UUIDS[0] + part for part in expected]
    assert found[GPU_RESOURCE] == UUIDS[1:]


@pytest.mark.parametrize("mode", ["TimeSlice", "MIG"])
def test_parts_of_an_unhealthy_gpu_stay_unhealthy(mode: str) -> None:
    snapshot = one(
        Sharing("MIG", mig_layout=("1g.10gb",)) if mode == "MIG" else Sharing("TimeSlice", replicas=2),
        conditions={UUIDS[0]: GpuCondition("Unhealthy", "Lost", "lost")},
        mig_instances={UUIDS[0]: (instance(0, 0),)},
    )
    found = offers(snapshot)
    parts = [device for resource in found.keys() - {GPU_RESOURCE} for device in found[resource]]
    assert parts
    assert not any(device.healthy for device in parts)


def test_a_fault_of_one_slice_leaves_the_others_of_its_gpu_healthy() -> None:
    slices = (instance(0, 0), instance(0, 1))
    snapshot = one(
        Sharing("MIG", mig_layout=("1g.10gb",) * 2),
        conditions={slices[0].uuid: GpuCondition("Unhealthy", "XidError", "XID 94")},
        mig_instances={UUIDS[0]: slices},
    )
    devices = offers(snapshot)["mcp2026.io/mig-1g.10gb"]
    assert [device.healthy for device in devices] == [False, True]


def test_a_degraded_gpu_is_offered_healthy() -> None:
    snapshot = one(Sharing(), conditions={UUIDS[0]: GpuCondition("Degraded", "LinkDown", "link 1")})
    assert all(device.healthy for device in offers(snapshot)[GPU_RESOURCE])


def test_a_gpu_of_which_nothing_is_known_yet_is_offered_whole_only_if_that_is_wanted() -> None:
    wanted = {uuid: Sharing() for uuid in UUIDS} | {UUIDS[2]: Sharing("MPS")}
    assert ids(Snapshot(PAIRS, wanted=wanted)) == {GPU_RESOURCE: [UUIDS[0], UUIDS[1], UUIDS[3]]}


def test_a_gpu_whose_memory_is_not_told_has_no_gib_to_sell() -> None:
    machine = replace(PAIRS, gpus=(replace(PAIRS.gpus[0], memory_mib=0), *PAIRS.gpus[1:]))
    snapshot = replace(one(Sharing("TimeSlice", unit="Memory")), machine=machine)
    assert ids(snapshot) == {GPU_RESOURCE: UUIDS[1:]}


def test_all_gib_of_eight_gpus_fit_into_one_message() -> None:
    hgx = machine_from_file(TOPOLOGIES / "hgx-h100-8gpu.yaml")
    machine = replace(hgx, gpus=tuple(replace(gpu, memory_mib=141 * 1024) for gpu in hgx.gpus))
    memory = CurrentSharing(Sharing("TimeSlice", unit="Memory"))
    snapshot = Snapshot(machine, sharing={gpu.uuid: memory for gpu in machine.gpus})
    devices = offers(snapshot)[GPU_MEMORY_RESOURCE]
    assert len(devices) == 8 * 141
    assert device_list_message(devices).ByteSize() < LARGEST_MESSAGE // 32


SHARINGS = st.one_of(
    st.just(Sharing()),
    st.builds(
        Sharing,
        mode=st.sampled_from(["TimeSlice", "MPS"]),
        replicas=st.none() | st.integers(1, 48),
    ),
    st.builds(Sharing, mode=st.sampled_from(["TimeSlice", "MPS"]), unit=st.just("Memory")),
    st.just(Sharing("MIG", mig_layout=("1g.10gb", "2g.20gb"))),
)
STATES = st.sampled_from(["Active", "Draining", "Changing", "Failed"])


@st.composite
def snapshots(draw: st.DrawFn, machine: Machine = PAIRS) -> Snapshot:
    """Any configuration, any state, any devices held, also of modes that were before."""
    sharing = {
        gpu.uuid: CurrentSharing(draw(SHARINGS), draw(STATES)) for gpu in machine.gpus if draw(st.booleans())
    }
    instances = {
        gpu.uuid: tuple(instance(gpu.index, number) for number in range(draw(st.integers(0, 7))))
        for gpu in machine.gpus
    }
    everything = [
        *(gpu.uuid for gpu in machine.gpus),
        *(f"{gpu.uuid}::{part}" for gpu in machine.gpus for part in (0, 1, "m0", "m1")),
        *(each.uuid for some in instances.values() for each in some),
    ]
    held = draw(st.lists(st.sampled_from(everything), unique=True))
    return Snapshot(
        machine,
        sharing=sharing,
        mig_instances=instances,
        holdings={device: Holding("mcp2026.io/gpu") for device in held},
    )


@settings(deadline=None, max_examples=200)
@given(snapshots())
def test_a_gpu_never_stands_under_two_names(snapshot: Snapshot) -> None:
    names: dict[str, set[str]] = {}
    for resource, devices in offers(snapshot).items():
        seen = [device.id for device in devices]
        assert len(seen) == len(set(seen))
        for device in seen:
            assert len(device) <= LONGEST_DEVICE_ID
            kind = "MIG" if "mig-" in resource else resource
            names.setdefault(snapshot.gpu_of(device), set()).add(kind)
    assert all(len(kinds) == 1 for kinds in names.values())
    assert names.keys() <= set(UUIDS)


@settings(deadline=None, max_examples=100)
@given(snapshots())
def test_gib_offered_never_exceed_the_memory(snapshot: Snapshot) -> None:
    gib = [parse_device_id(device.id).uuid for device in offers(snapshot).get(GPU_MEMORY_RESOURCE, ())]
    for gpu in snapshot.machine.gpus:
        assert gib.count(gpu.uuid) * 1024 <= gpu.memory_mib
