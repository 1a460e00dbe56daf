"""What becomes of the driver's events and of how the GPUs look, with a clock by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp2026.api.errors import InvalidResourceError
from mcp2026.device_plugin.devices import GpuCondition
from mcp2026.device_plugin.driver import EventKind, GpuEvent, Vitals
from mcp2026.device_plugin.health.monitor import HealthMonitor
from mcp2026.device_plugin.health.settings import (
    APPLICATION_XIDS,
    HealthSettings,
    check_health_settings,
)
from mcp2026.device_plugin.health.xids import MEANINGS, Cure, meaning_of

GPU, OTHER, SLICE = "GPU-0", "GPU-1", "MIG-0"
WELL = Vitals(uncorrected_ecc_errors=0)
RECOVER_S = 60.0


class Node:
    """Two GPUs and a clock; `GPU` has the slice `SLICE`. A GPU is looked at every 5 s."""

    def __init__(self, given: HealthSettings | None = None) -> None:
        self.monitor = HealthMonitor(given or HealthSettings())
        self.now = 1000.0
        self.vitals = {GPU: WELL, OTHER: WELL}
        self.look()

    def look(self) -> None:
        self.monitor.look(self.vitals, {GPU: {SLICE}}, self.now)

    def xid(self, code: int, uuid: str | None = GPU, mig_uuid: str | None = None) -> None:
        self.monitor.tell(GpuEvent(uuid, EventKind.XID, code, mig_uuid), self.vitals.keys(), self.now)

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + 5, end)
            self.look()

    def condition(self, uuid: str = GPU) -> GpuCondition | None:
        return self.monitor.conditions(self.now).get(uuid)

    def health(self, uuid: str = GPU) -> str:
        condition = self.condition(uuid)
        return "Healthy" if condition is None else condition.health


@pytest.mark.parametrize("code", sorted(APPLICATION_XIDS))
def test_faults_of_programs_are_no_faults_of_the_gpu(code: int) -> None:
    node = Node()
    node.xid(code)
    assert node.health() == "Healthy"


def test_which_xids_are_ignored_can_be_set() -> None:
    node = Node(HealthSettings(ignored_xids=(94,), additional_xids=(31,)))
    node.xid(94)
    assert node.health() == "Healthy"
    node.xid(31)
    assert node.health() == "Unhealthy"
    with pytest.raises(InvalidResourceError, match="31"):
        check_health_settings(HealthSettings(ignored_xids=(31,), additional_xids=(31,)))


@pytest.mark.parametrize("code", [*MEANINGS, 4711])
def test_each_xid_says_what_happened_and_what_to_do(code: int) -> None:
    node = Node()
    node.xid(code)
    condition = node.condition()
    assert condition is not None
    assert condition.reason == f"Xid{code}"
    assert condition.health == ("Degraded" if meaning_of(code).degraded else "Unhealthy")
    assert condition.message.startswith(f"XID {code}: ")
    assert condition.message.count(":") >= 2
    assert node.health(OTHER) == "Healthy"


@pytest.mark.parametrize("code", [code for code in [*MEANINGS, 4711] if meaning_of(code).cure is Cure.TIME])
def test_a_transient_xid_is_over_after_clean_probes(code: int) -> None:
    node = Node()
    node.xid(code)
    node.wait(RECOVER_S - 1)
    assert node.health() != "Healthy"
    node.wait(2)
    assert node.health() == "Healthy"


@pytest.mark.parametrize("code", [code for code in MEANINGS if meaning_of(code).cure is Cure.RESET])
def test_an_xid_that_needs_a_reset_lasts_until_the_gpu_went_and_came_back(code: int) -> None:
    node = Node()
    node.xid(code)
    node.wait(3600)
    assert node.health() == "Unhealthy"
    node.vitals[GPU] = Vitals(failure="GPU is lost")
    node.look()
    node.vitals[GPU] = WELL
    node.look()
    assert node.health() == "Unhealthy"
    assert "does not answer" in str(node.condition())
    node.wait(RECOVER_S * 2)
    assert node.health() == "Healthy"


def test_a_driver_that_was_loaded_anew_ends_what_needs_a_reset() -> None:
    node = Node()
    node.xid(48)
    node.monitor.lose_driver()
    node.look()
    assert node.health() == "Healthy"


def test_error_counts_that_start_anew_tell_of_a_reset() -> None:
    node = Node()
    node.vitals[GPU] = Vitals(uncorrected_ecc_errors=3)
    node.look()
    node.xid(95)
    node.vitals[GPU] = Vitals(uncorrected_ecc_errors=0)
    node.wait(RECOVER_S + 5)
    assert node.health() == "Healthy"


def test_a_new_uncorrected_error_counts_and_old_ones_do_not() -> None:
    node = Node()
    node.vitals[OTHER] = Vitals(uncorrected_ecc_errors=0)
    node.vitals["GPU-2"] = Vitals(uncorrected_ecc_errors=7)
    node.look()
    assert node.health("GPU-2") == "Healthy"
    node.vitals[OTHER] = Vitals(uncorrected_ecc_errors=1)
    node.look()
    condition = node.condition(OTHER)
    assert condition is not None
    assert condition.reason == "UncorrectedEcc"


def test_double_bit_errors_count_and_single_bit_errors_do_not() -> None:
    node = Node()
    node.monitor.tell(GpuEvent(GPU, EventKind.SINGLE_BIT_ECC), {GPU}, node.now)
    assert node.health() == "Healthy"
    node.monitor.tell(GpuEvent(GPU, EventKind.DOUBLE_BIT_ECC), {GPU}, node.now)
    assert node.health() == "Unhealthy"


@pytest.mark.parametrize(
    ("vitals", "health", "reason"),
    [
        (Vitals(failure="GPU is lost"), "Unhealthy", "NotAnswering"),
        (Vitals(pending_repair="row remapping"), "Unhealthy", "PendingRepair"),
        (Vitals(fabric_failure="it has not joined the NVSwitch fabric"), "Unhealthy", "OffFabric"),
        (Vitals(inactive_links=(2, 5)), "Degraded", "LinkDown"),
    ],
)
def test_what_can_be_seen_begins_at_once_and_ends_after_it_was_gone_for_a_while(
    vitals: Vitals, health: str, reason: str
) -> None:
    node = Node()
    node.vitals[GPU] = vitals
    node.look()
    condition = node.condition()
    assert condition is not None
    assert (condition.health, condition.reason) == (health, reason)
    node.wait(600)
    assert node.condition() == condition
    node.vitals[GPU] = WELL
    node.wait(RECOVER_S - 5)
    assert node.health() == health
    node.wait(10)
    assert node.health() == "Healthy"


def test_a_gpu_off_the_fabric_sends_people_to_the_fabric_manager() -> None:
    node = Node()
    node.vitals[GPU] = Vitals(fabric_failure="it has not joined the NVSwitch fabric")
    node.look()
    assert str(node.condition()).count("check the fabric manager") == 1


def test_what_a_repair_needs_is_told_as_the_driver_knows_it() -> None:
    node = Node()
    node.vitals[GPU] = Vitals(pending_repair="row remapping failed: the board has to be exchanged")
    node.look()
    condition = node.condition()
    assert condition is not None
    assert condition.message == "row remapping failed: the board has to be exchanged"


@pytest.mark.parametrize("recover_s", [0.0, 1e-6, 1.0, RECOVER_S, 86400.0])
def test_thousands_of_failures_within_an_hour_are_borne(recover_s: float) -> None:
    node = Node(HealthSettings(recover_after_seconds=recover_s))
    for _ in range(3000):
        node.xid(94)
        node.now += 1.0
        node.look()
        node.condition()
    node.wait(2 * max(3600.0, recover_s))
    assert node.health() == "Healthy"


def test_a_short_slowdown_by_heat_is_nothing_and_a_long_one_degrades() -> None:
    node = Node()
    node.vitals[GPU] = Vitals(thermal_slowdown=True)
    node.look()
    node.vitals[GPU] = WELL
    node.wait(5)
    node.vitals[GPU] = Vitals(thermal_slowdown=True)
    node.wait(10)
    assert node.health() == "Healthy"
    node.wait(10)
    condition = node.condition()
    assert condition is not None
    assert (condition.health, condition.reason) == ("Degraded", "ThermalSlowdown")
    node.vitals[GPU] = WELL
    node.wait(RECOVER_S + 5)
    assert node.health() == "Healthy"


def test_an_event_of_a_slice_is_of_that_slice_alone() -> None:
    node = Node()
    node.xid(94, mig_uuid=SLICE)
    assert node.health(SLICE) == "Unhealthy"
    assert node.health(GPU) == "Healthy"
    node.monitor.look(node.vitals, {GPU: {"MIG-1"}}, node.now)
    assert node.monitor.conditions(node.now) == {}


def test_an_event_of_no_gpu_in_particular_is_one_of_all() -> None:
    node = Node()
    node.xid(79, uuid=None)
    assert node.health(GPU) == node.health(OTHER) == "Unhealthy"


def test_the_worst_fault_gives_the_reason_and_the_others_are_named() -> None:
    node = Node()
    node.vitals[GPU] = Vitals(inactive_links=(1,))
    node.look()
    node.xid(94)
    node.xid(48)
    condition = node.condition()
    assert condition is not None
    assert condition.reason == "Xid48"
    assert "also: XID 94" in condition.message
    assert "also: NVLink 1 down" in condition.message


def test_a_gpu_that_fails_again_and_again_comes_back_later_each_time() -> None:
    node = Node()
    pauses = []
    for _ in range(5):
        node.xid(94)
        began = node.now
        while node.health() != "Healthy":
            node.wait(5)
        pauses.append(node.now - began)
    assert pauses == sorted(set(pauses))
    assert pauses[-1] >= 8 * pauses[0]
    node.wait(2 * 3600)
    node.xid(94)
    node.wait(RECOVER_S + 5)
    assert node.health() == "Healthy"


@given(st.lists(st.tuples(st.sampled_from((94, 79, 31)), st.floats(0.5, 900)), min_size=2, max_size=60))
@settings(max_examples=100, deadline=None)
def test_however_often_it_fails_the_state_changes_seldom_and_it_recovers(
    history: list[tuple[int, float]],
) -> None:
    node = Node()
    changes, before = 0, "Healthy"
    for code, pause in history:
        node.xid(code)
        changes, before = changes + (node.health() != before), node.health()
        node.now += pause
        node.look()
        changes, before = changes + (node.health() != before), node.health()
    hours = 1 + (node.now - 1000) / 3600
    assert changes <= 16 * hours
    node.wait(3700)
    assert node.health() == "Healthy"
