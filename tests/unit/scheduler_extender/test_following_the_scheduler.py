"""Whether the kube-scheduler beside us leads."""

import pytest

from mcp2026.scheduler_extender.election import LeaseRecord
from mcp2026.scheduler_extender.following import SchedulerBeside


def lease(holder: str, version: str = "1") -> LeaseRecord:
    return LeaseRecord(holder, 15, 0, "", "", version)


@pytest.mark.parametrize(
    ("identity", "holder", "leads"),
    [
        pytest.param("pod-a", "pod-a_6f1e", True, id="the scheduler of our pod"),
        pytest.param("pod-a_77aa", "pod-a_6f1e", True, id="we, too, have a random part"),
        pytest.param("pod-a", "pod-b_6f1e", False, id="that of another pod"),
        pytest.param("pod-a", "pod-a2_6f1e", False, id="of a pod whose name begins like ours"),
        pytest.param("pod-a", "", False, id="nobody"),
    ],
)
def test_it_is_known_by_the_name_of_its_host(identity: str, holder: str, leads: bool) -> None:
    beside = SchedulerBeside(identity)
    beside.read(lease(holder), 100.0)
    assert beside.leads(100.0) is leads
    assert beside.holder == holder


def test_without_a_lease_none_leads() -> None:
    beside = SchedulerBeside("pod-a")
    assert not beside.leads(0.0)
    beside.read(None, 1.0)
    assert not beside.leads(1.0)


def test_it_leads_until_its_lease_was_seen_unchanged_for_too_long() -> None:
    beside = SchedulerBeside("pod-a")
    beside.read(lease("pod-a_1"), 100.0)
    beside.read(lease("pod-a_1"), 110.0)
    assert beside.leads(114.9)
    assert not beside.leads(115.0)
    beside.read(lease("pod-a_1", "2"), 115.0)
    assert beside.leads(129.0)
