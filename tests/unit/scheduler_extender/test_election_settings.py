"""What the command line may say about an election."""

import socket

import pytest

from mcp2026.api.errors import SettingsError
from mcp2026.scheduler_extender.election import LeaseTiming
from mcp2026.scheduler_extender.settings import LEASE_NAME, read_settings

ON = "--leader-elect"


def test_without_the_flag_there_is_no_election() -> None:
    assert read_settings([], {}).election is None


def test_by_default_the_timing_is_that_of_client_go_and_no_two_have_one_identity() -> None:
    first, second = (read_settings([ON], {}).election for _ in range(2))
    assert first is not None
    assert second is not None
    assert (first.lease, first.beside) == (f"default/{LEASE_NAME}", "")
    assert first.timing == LeaseTiming(15, 10, 2)
    assert first.identity.startswith(f"{socket.gethostname()}_")
    assert first.identity != second.identity


def test_flags_are_taken() -> None:
    flags = ["--leader-elect-identity=pod-a", "--leader-elect-lease=a/b", "--leader-elect-lease-duration=60"]
    flags += ["--leader-elect-beside-scheduler=a/c", "--leader-elect-renew-deadline=40.5"]
    election = read_settings([ON, *flags, "--leader-elect-retry-period=5"], {}).election
    assert election is not None
    assert (election.identity, election.lease, election.beside) == ("pod-a", "a/b", "a/c")
    assert election.timing == LeaseTiming(60, 40.5, 5)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        pytest.param(
            ["--leader-elect-lease=a/b"], "--leader-elect-lease: is given without", id="no election"
        ),
        pytest.param([ON, "--leader-elect-lease=b"], "--leader-elect-lease.*NAMESPACE/NAME", id="one name"),
        pytest.param([ON, "--leader-elect-lease=A/b"], "--leader-elect-lease.*lower case", id="upper case"),
        pytest.param(
            [ON, "--leader-elect-beside-scheduler=a/b/c"], "--leader-elect-beside-scheduler", id="three names"
        ),
        pytest.param(
            [ON, "--leader-elect-lease=a/b", "--leader-elect-beside-scheduler=a/b"],
            "--leader-elect-lease: a/b is the schedulers'",
            id="one Lease for two elections",
        ),
        pytest.param([ON, "--leader-elect-identity="], "--leader-elect-identity: is empty", id="no name"),
        pytest.param(
            [ON, "--leader-elect-lease-duration=10"], "at least 1 more than", id="valid too briefly"
        ),
        pytest.param([ON, "--leader-elect-lease-duration=15.5"], "whole seconds", id="half a second"),
        pytest.param(
            [ON, "--leader-elect-lease-duration=nan"], "--leader-elect-lease-duration", id="no number"
        ),
        pytest.param([ON, "--leader-elect-renew-deadline=2"], "more than 1.2 times", id="no time to retry"),
        pytest.param([ON, "--leader-elect-retry-period=0"], "0.1 or more", id="without a pause"),
    ],
)
def test_what_cannot_work_is_refused_by_its_flag(flags: list[str], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        read_settings(flags, {})
