"""Who leads, over a Lease that is kept in memory and a clock that the test moves."""

from dataclasses import dataclass, field, replace

import pytest

from mcp2026.scheduler_extender.election import (
    READ,
    Election,
    LeaseRecord,
    LeaseTiming,
    Wish,
    WriteLease,
)

WALL = "2026-11-30T12:00:00.000000Z"
TIMING = LeaseTiming(lease_s=15, renew_s=10, retry_s=2)


@dataclass
class Server:
    """The API server with one Lease. `down`: requests fail; `deaf`: writes are stored and not answered."""

    lease: LeaseRecord | None = None
    version: int = 100
    down: bool = False
    deaf: bool = False

    def put(self, holder: str, lease_s: int = 15, transitions: int = 3) -> None:
        """Somebody else writes the Lease."""
        self.version += 1
        self.lease = LeaseRecord(holder, lease_s, transitions, WALL, WALL, str(self.version))

    def write(self, record: LeaseRecord) -> LeaseRecord | None:
        """Store it; None: it is another by now."""
        if record.version != (self.lease.version if self.lease is not None else ""):
            return None
        self.version += 1
        self.lease = replace(record, version=str(self.version))
        return self.lease


@dataclass
class Candidate:
    """A candidate that carries out its steps at `server` without delay, by its own clock."""

    server: Server
    name: str = "a"
    now: float = 1000.0
    election: Election = field(init=False)

    def __post_init__(self) -> None:
        self.election = Election(self.name, TIMING)

    @property
    def leads(self) -> bool:
        return self.election.leads(self.now)

    def tick(self, seconds: float = 0.0) -> None:
        """Let time go by, and do what is due then."""
        self.now += seconds
        while (step := self.election.next_step(self.now, WALL)) is not None:
            if self.server.down:
                self.election.failed("no answer", self.now)
            elif isinstance(step, WriteLease):
                stored = self.server.write(step.record)
                if self.server.deaf:
                    self.election.failed("no answer", self.now)
                elif stored is None:
                    self.election.overtaken(self.now)
                else:
                    self.election.written(stored, self.now, self.now)
            else:
                self.election.read(self.server.lease, self.now)

    def live(self, seconds: float, step: float = 0.5) -> None:
        for _ in range(round(seconds / step)):
            self.tick(step)


def test_the_first_step_is_to_look() -> None:
    assert Election("a", TIMING).next_step(0.0, WALL) == READ


@pytest.mark.parametrize(
    ("before", "leads", "transitions"),
    [
        pytest.param(None, True, 0, id="there is no Lease: it is made"),
        pytest.param("", True, 4, id="it was let go: it is taken at once"),
        pytest.param("b", False, 3, id="another holds it: it is waited for"),
        pytest.param("a", True, 3, id="it is our own, from before a restart: it is renewed"),
    ],
)
def test_what_the_first_look_leads_to(before: str | None, leads: bool, transitions: int) -> None:
    server = Server()
    if before is not None:
        server.put(before)
    candidate = Candidate(server)
    candidate.tick()
    assert candidate.leads is leads
    assert server.lease is not None
    assert server.lease.transitions == transitions
    assert candidate.election.term == int(leads)


@pytest.mark.parametrize(
    ("own_s", "lease_s", "taken_after"),
    [
        pytest.param(15, 15, 15, id="both the same"),
        pytest.param(15, 40, 40, id="the holder promised to come back later than we would"),
        pytest.param(15, 1, 15, id="the holder's is shorter: ours counts, as for client-go"),
    ],
)
def test_a_lease_that_nobody_renews_is_taken_after_the_longer_validity(
    own_s: float, lease_s: int, taken_after: float
) -> None:
    server = Server()
    server.put("b", lease_s)
    candidate = Candidate(server)
    candidate.tick()
    candidate.live(taken_after - 0.5)
    assert not candidate.leads
    candidate.live(TIMING.retry_s + 0.5)
    assert candidate.leads
    assert server.lease is not None
    assert server.lease.holder == "a"


def test_times_in_the_lease_do_not_count_whatever_they_say() -> None:
    server = Server()
    server.put("b")
    assert server.lease is not None
    server.lease = replace(server.lease, acquired="1970-01-01T00:00:00Z", renewed="1970-01-01T00:00:00Z")
    candidate = Candidate(server)
    candidate.tick()
    candidate.live(10)
    assert not candidate.leads, "it was seen for 10 s only"


def test_a_lease_that_is_renewed_is_never_taken() -> None:
    server = Server()
    server.put("b")
    candidate = Candidate(server)
    for _ in range(20):
        candidate.live(10)
        server.put("b")
        assert not candidate.leads


def test_two_that_come_at_once_do_not_both_lead() -> None:
    server = Server()
    a, b = Candidate(server, "a"), Candidate(server, "b")
    for candidate in (a, b):  # both see that there is none
        assert candidate.election.next_step(candidate.now, WALL) == READ
        candidate.election.read(None, candidate.now)
    a.tick()
    b.tick()
    assert (a.leads, b.leads) == (True, False)
    assert b.election.holder == "a"


def test_clocks_of_any_difference_never_let_two_lead_at_once() -> None:
    server = Server()
    a, b = Candidate(server, "a", now=5.0), Candidate(server, "b", now=9_000_000.0)
    for number in range(4000):
        a.tick(0.25)
        b.tick(0.25 * 1.3)  # its clock runs too fast by a third
        server.down = number % 400 > 340
        assert not (a.leads and b.leads)
    assert a.election.term + b.election.term >= 1


def test_a_leader_without_an_api_server_stops_after_the_renew_deadline() -> None:
    server = Server()
    candidate = Candidate(server)
    candidate.tick()
    server.down = True
    candidate.live(9.5)
    assert candidate.leads
    assert candidate.election.seconds_alone(candidate.now) == pytest.approx(5.5)
    candidate.live(0.5)
    assert not candidate.leads
    assert candidate.election.problem == "no answer"


def test_a_late_renewal_continues_the_term_if_nobody_wrote_meanwhile() -> None:
    server = Server()
    candidate = Candidate(server)
    candidate.tick()
    server.down = True
    candidate.live(60)
    assert not candidate.leads
    server.down = False
    candidate.live(TIMING.retry_s)
    assert candidate.leads
    assert candidate.election.term == 1


def test_a_lease_that_came_back_is_another_term() -> None:
    server = Server()
    candidate = Candidate(server)
    candidate.tick()
    server.put("b")
    candidate.live(2)
    assert not candidate.leads
    assert candidate.election.seconds_alone(candidate.now) == 0.0
    server.put("")
    candidate.live(2)
    assert candidate.leads
    assert candidate.election.term == 2


def test_a_lease_that_was_deleted_is_another_term() -> None:
    server = Server()
    candidate = Candidate(server)
    candidate.tick()
    server.lease = None
    candidate.live(2)
    assert candidate.leads
    assert candidate.election.term == 2


def test_a_renewal_counts_from_when_it_was_sent() -> None:
    election = Election("a", TIMING)
    election.read(None, 10.0)
    step = election.next_step(10.0, WALL)
    assert isinstance(step, WriteLease)
    election.written(replace(step.record, version="1"), 10.0, 14.0)
    assert election.leads(19.9)
    assert not election.leads(20.0)
    assert election.seconds_alone(20.0) == 5.0


def test_a_write_without_an_answer_counts_only_when_it_is_confirmed() -> None:
    server = Server(deaf=True)
    candidate = Candidate(server)
    candidate.tick()
    assert server.lease is not None, "it was stored"
    assert not candidate.leads
    server.deaf = False
    candidate.live(2)
    assert candidate.leads
    assert candidate.election.term == 1


def test_a_leader_that_leaves_lets_the_lease_go_for_the_next() -> None:
    server = Server()
    a, b = Candidate(server, "a"), Candidate(server, "b")
    a.tick()
    b.tick()
    a.election.want(Wish.LEAVE, a.now)
    assert not a.leads, "before it is written"
    a.tick()
    assert not a.election.holds
    assert server.lease is not None
    assert (server.lease.holder, server.lease.lease_s) == ("", 1)
    b.live(TIMING.retry_s)
    assert b.leads
    a.live(60)
    assert not a.leads


def test_a_standby_that_leaves_does_not_touch_the_lease() -> None:
    server = Server()
    server.put("b")
    before = server.lease
    candidate = Candidate(server)
    candidate.tick()
    candidate.election.want(Wish.LEAVE, candidate.now)
    candidate.live(60)
    assert server.lease == before


def test_who_abstains_does_not_answer_and_writes_nothing() -> None:
    server = Server()
    candidate = Candidate(server)
    candidate.tick()
    before = server.lease
    candidate.election.want(Wish.ABSTAIN, candidate.now)
    assert not candidate.leads
    candidate.live(60)
    assert server.lease == before
    candidate.election.want(Wish.LEAD, candidate.now)
    candidate.tick()
    assert candidate.leads
    assert candidate.election.term == 1


def test_a_look_that_is_in_a_hurry_does_not_wait_for_the_pause() -> None:
    server = Server()
    server.put("b")
    candidate = Candidate(server)
    candidate.tick()
    server.put("")
    candidate.tick(0.1)
    assert not candidate.leads
    candidate.election.hurry(candidate.now)
    candidate.tick()
    assert candidate.leads
