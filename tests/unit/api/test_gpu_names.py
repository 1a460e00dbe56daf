"""Names of devices and reservations: what is written can be read, and fits the kubelet's limits."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.gpu_assignment import format_gpu_assignment, parse_gpu_assignment
from mcp2026.api.gpu_devices import (
    LONGEST_DEVICE_ID,
    DeviceId,
    DeviceKind,
    kind_of_resource,
    mig_resource,
    parse_device_id,
)
from mcp2026.api.gpu_sharing import Sharing, check_sharing

GPU = "GPU-a1004006-0000-4000-8000-000000000000"
MIG = "MIG-b8c0d1e2-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("text", "device"),
    [
        (GPU, DeviceId(GPU, DeviceKind.GPU)),
        (MIG, DeviceId(MIG, DeviceKind.MIG)),
        (f"{GPU}::3", DeviceId(GPU, DeviceKind.SHARE, 3)),
        (f"{GPU}::m143", DeviceId(GPU, DeviceKind.MEMORY, 143)),
        ("GPU-x::y", DeviceId("GPU-x::y", DeviceKind.GPU)),
        ("GPU-x::007", DeviceId("GPU-x::007", DeviceKind.GPU)),
        ("GPU-x::m\u0663", DeviceId("GPU-x::m\u0663", DeviceKind.GPU)),
    ],
)
def test_a_name_comes_back_as_it_went(text: str, device: DeviceId) -> None:
    assert parse_device_id(text) == device
    assert str(device) == text
    assert len(text) <= LONGEST_DEVICE_ID


@example("GPU-x::" + "9" * 5000)  # more digits than Python makes a number of
@given(st.text() | st.builds("{}::{}{}".format, st.text(), st.sampled_from(["", "m"]), st.integers()))
def test_any_text_is_a_name(text: str) -> None:
    assert str(parse_device_id(text)) == text


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        ("mcp2026.io/gpu", DeviceKind.GPU),
        ("mcp2026.io/gpu-shared", DeviceKind.SHARE),
        ("mcp2026.io/gpu-memory", DeviceKind.MEMORY),
        (mig_resource("1g.10gb+me"), DeviceKind.MIG),
        ("nvidia.com/gpu", None),
        ("cpu", None),
    ],
)
def test_resources_say_what_their_units_are(resource: str, kind: DeviceKind | None) -> None:
    assert kind_of_resource(resource) == kind


def test_a_mig_profile_makes_a_name_that_kubernetes_allows() -> None:
    assert mig_resource("1g.10gb+me") == "mcp2026.io/mig-1g.10gb.me"


def test_an_assignment_comes_back_as_it_went() -> None:
    assignment = {"runtime": {"mcp2026.io/gpu": (GPU,)}, "a": {"mcp2026.io/gpu-memory": (f"{GPU}::m0",)}}
    assert parse_gpu_assignment(format_gpu_assignment(assignment)) == assignment


@pytest.mark.parametrize("value", ["", "{", "[]", '{"runtime": ["x"]}', '{"runtime": {"r": "x"}}'])
def test_an_assignment_that_cannot_be_read_is_refused(value: str) -> None:
    with pytest.raises(InvalidResourceError, match=r"gpu-assignment.*allowed: JSON such as"):
        parse_gpu_assignment(value)


@pytest.mark.parametrize(
    ("sharing", "field"),
    [
        (Sharing(unit="Memory"), "sharing.unit"),
        (Sharing(replicas=2), "sharing.replicas"),
        (Sharing(mode="MPS", unit="Memory", replicas=2), "sharing.replicas"),
        (Sharing(mode="MPS", replicas=49), "sharing.replicas"),
        (Sharing(mode="MIG"), "sharing.migLayout"),
        (Sharing(mode="MPS", mig_layout=("1g.10gb",)), "sharing.migLayout"),
    ],
)
def test_a_sharing_that_means_nothing_is_refused(sharing: Sharing, field: str) -> None:
    with pytest.raises(InvalidResourceError) as refusal:
        check_sharing(sharing, "sharing")
    assert refusal.value.field == field


@pytest.mark.parametrize(
    ("sharing", "shares"),
    [
        (Sharing(), 1),
        (Sharing(mode="TimeSlice"), 4),
        (Sharing(mode="MPS", replicas=48), 48),
        (Sharing(mode="MPS", unit="Memory"), 1),
        (Sharing(mode="MIG", mig_layout=("3g.40gb", "3g.40gb")), 1),
    ],
)
def test_a_gpu_is_sold_in_as_many_shares_as_asked(sharing: Sharing, shares: int) -> None:
    check_sharing(sharing, "sharing")
    assert sharing.shares == shares
