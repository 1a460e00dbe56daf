"""Who holds what: from Allocate on, until pod-resources tells, and as it tells."""

from pathlib import Path

import pytest

from mcp2026.api.gpu_topology import Holder
from mcp2026.device_plugin.devices import Holding, Snapshot
from mcp2026.device_plugin.holdings import IDLE_FACTOR, UNCONFIRMED_S, Held, Promises, pause_before_asking
from mcp2026.topology.machine import machine_from_file

GPU = "mcp2026.io/gpu"
HOLDER = Holder("team", "p", "main")


@pytest.fixture
def node() -> Snapshot:
    return Snapshot(
        machine_from_file(Path(__file__).parents[2] / "topologies" / "4xa100-pcie-nvlink-pairs.yaml")
    )


def test_what_is_handed_out_is_held_until_the_kubelet_names_the_holder(node: Snapshot) -> None:
    promises = Promises()
    node = promises.hand_out(node, GPU, ["A"], now=10.0)
    assert node.holdings == {"A": Holding(GPU)}
    assert not node.holdings_known
    node = promises.reconcile(node, [], asked_at=10.1)
    assert node.holdings == {"A": Holding(GPU)}, "the kubelet names it only after it admitted the pod"
    assert node.holdings_known
    node = promises.reconcile(node, [Held(GPU, HOLDER, ("A",))], asked_at=11.0)
    assert node.holdings == {"A": Holding(GPU, HOLDER)}
    assert promises.reconcile(node, [], asked_at=12.0).holdings == {}, "let go"


def test_what_nobody_claims_is_free_again_after_a_while(node: Snapshot) -> None:
    promises = Promises()
    node = promises.hand_out(node, GPU, ["A", "B"], now=0.0)
    node = promises.reconcile(node, [Held(GPU, HOLDER, ("B",))], asked_at=UNCONFIRMED_S)
    assert node.holdings == {"A": Holding(GPU), "B": Holding(GPU, HOLDER)}
    node = promises.reconcile(node, [Held(GPU, HOLDER, ("B",))], asked_at=UNCONFIRMED_S + 0.1)
    assert node.holdings == {"B": Holding(GPU, HOLDER)}


def test_an_answer_that_was_under_way_during_allocate_does_not_free_the_device(node: Snapshot) -> None:
    promises = Promises()
    node = promises.hand_out(node, GPU, ["A"], now=10.0)
    assert promises.reconcile(node, [], asked_at=9.0).holdings == {"A": Holding(GPU)}


def test_an_answer_of_before_allocate_that_names_the_last_holder_is_of_no_account(node: Snapshot) -> None:
    promises = Promises()
    node = promises.reconcile(node, [Held(GPU, HOLDER, ("A",))], asked_at=1.0)
    node = promises.hand_out(node, GPU, ["A"], now=10.0)
    node = promises.reconcile(node, [Held(GPU, HOLDER, ("A",))], asked_at=9.0)
    assert node.holdings == {"A": Holding(GPU)}
    assert promises.reconcile(node, [], asked_at=11.0).holdings == {"A": Holding(GPU)}, "not admitted yet"


def test_the_same_answer_changes_nothing(node: Snapshot) -> None:
    promises = Promises()
    told = [Held(GPU, HOLDER, ("A",))]
    first = promises.reconcile(node, told, asked_at=1.0)
    assert promises.reconcile(first, told, asked_at=2.0) == first


def test_parts_count_for_their_gpu(node: Snapshot) -> None:
    shared = Promises().hand_out(node, "mcp2026.io/gpu-shared", ["A::0", "A::3", "B::m1"], now=0.0)
    assert shared.held_devices == {"A": {"A::0", "A::3"}, "B": {"B::m1"}}


@pytest.mark.parametrize(
    ("empty_s", "pause_s"),
    [
        pytest.param(0.0, 5.0, id="somebody holds something: the usual interval"),
        pytest.param(10.0, 5.0, id="nobody for a moment: the kubelet may be starting"),
        pytest.param(30.0, 15.0, id="nobody for longer: half of that"),
        pytest.param(86400.0, 5.0 * IDLE_FACTOR, id="nobody for a day: the longest"),
    ],
)
def test_the_kubelet_is_asked_rarely_while_nobody_holds_anything(empty_s: float, pause_s: float) -> None:
    assert pause_before_asking(empty_s, interval_s=5.0) == pause_s
