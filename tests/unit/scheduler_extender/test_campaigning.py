"""When a candidate answers, what it does first, and when it lets the Lease go: over Leases in memory."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from mcp2026.scheduler_extender.campaigning import Campaign
from mcp2026.scheduler_extender.election import LeaseTiming
from mcp2026.scheduler_extender.errors import BindingRefusedError, BindingUncertainError, NotLeadingError
from mcp2026.scheduler_extender.settings import ElectionSettings
from tests.fakes.lease_store import LeaseStore

LEASE, SCHEDULERS = "system/extender", "system/scheduler"
TIMING = LeaseTiming(lease_s=4, renew_s=3, retry_s=0.1)


class Candidate:
    """A campaign, and whether it may catch up."""

    def __init__(self, store: LeaseStore, identity: str = "pod-a", beside: str = "") -> None:
        settings = ElectionSettings(identity, LEASE, beside, TIMING)
        self.may_catch_up = asyncio.Event()
        self.may_catch_up.set()
        self.caught_up = 0
        self.campaign = Campaign(settings, store, self._catch_up, time.monotonic, lambda: "now")

    async def _catch_up(self) -> None:
        await self.may_catch_up.wait()
        self.caught_up += 1

    @property
    def leads(self) -> bool:
        return self.campaign.standing().leads

    @property
    def words(self) -> str:
        return self.campaign.standing().words

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        loop = asyncio.create_task(self.campaign.run())
        try:
            yield
        finally:
            loop.cancel()
            await asyncio.wait((loop,))
            await self.campaign.leave()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (the state of a loop that tells nobody)
            await asyncio.sleep(0.01)


async def test_it_answers_when_it_has_the_lease_and_has_read_what_was_bound() -> None:
    store = LeaseStore()
    candidate = Candidate(store)
    candidate.may_catch_up.clear()
    async with candidate.running():
        await until(lambda: store.holder(LEASE) == "pod-a")
        with pytest.raises(NotLeadingError, match="reads which pods are bound"):
            candidate.campaign.term()
        candidate.may_catch_up.set()
        await until(lambda: candidate.leads)
        assert candidate.campaign.term() == 1
    assert store.holder(LEASE) == "", "let go at the end"


async def test_each_term_reads_what_was_bound_before_it() -> None:
    store = LeaseStore()
    candidate = Candidate(store)
    async with candidate.running():
        await until(lambda: candidate.leads)
        store.put(LEASE, "pod-b")
        await until(lambda: not candidate.leads)
        assert "pod-b leads (Lease system/extender, unchanged for 0 s)" in candidate.words
        store.put(LEASE, "")
        await until(lambda: candidate.leads)
        assert (candidate.caught_up, candidate.campaign.terms) == (2, 2)


async def test_a_write_of_an_earlier_term_is_not_begun() -> None:
    store = LeaseStore()
    candidate = Candidate(store)
    async with candidate.running():
        await until(lambda: candidate.leads)
        with candidate.campaign.writing(1) as seconds:
            assert 3 < seconds <= 4
        store.put(LEASE, "")
        await until(lambda: candidate.campaign.terms == 2 and candidate.leads)
        with (
            pytest.raises(NotLeadingError, match="before another extender may have led"),
            candidate.campaign.writing(1),
        ):
            pass


@pytest.mark.parametrize(
    ("error", "let_go"),
    [
        pytest.param(BindingRefusedError("409"), True, id="refused"),
        pytest.param(BindingUncertainError("504"), False, id="not known"),
        pytest.param(asyncio.CancelledError(), False, id="cut off"),
    ],
)
async def test_the_lease_is_not_let_go_while_a_write_may_still_take_effect(
    error: BaseException, let_go: bool
) -> None:
    store = LeaseStore()
    candidate = Candidate(store)
    async with candidate.running():
        await until(lambda: candidate.leads)
        with pytest.raises(type(error)), candidate.campaign.writing(1):
            raise error
    assert (store.holder(LEASE) == "") is let_go


async def test_it_campaigns_only_while_the_scheduler_beside_it_leads() -> None:
    store = LeaseStore()
    store.put(SCHEDULERS, "pod-b_1")
    candidate = Candidate(store, beside=SCHEDULERS)
    async with candidate.running():
        await until(lambda: "pod-b_1, not the one beside it (Lease system/scheduler)" in candidate.words)
        assert not candidate.campaign.standing().asked
        assert store.holder(LEASE) == ""
        store.put(SCHEDULERS, "pod-a_1")
        await until(lambda: candidate.leads)
        store.put(SCHEDULERS, "pod-b_1")
        await until(lambda: store.holder(LEASE) == "")
        assert not candidate.leads


async def test_it_keeps_the_lease_while_a_write_is_under_way_though_its_scheduler_leads_no_more() -> None:
    store = LeaseStore()
    store.put(SCHEDULERS, "pod-a_1")
    candidate, other = Candidate(store, beside=SCHEDULERS), Candidate(store, "pod-b", beside=SCHEDULERS)
    async with candidate.running(), other.running():
        await until(lambda: candidate.leads)
        with candidate.campaign.writing(1):
            store.put(SCHEDULERS, "pod-b_1")
            await until(lambda: not candidate.leads and "pod-a leads" in other.words)
            assert other.campaign.standing().asked
        await until(lambda: other.leads)


async def test_a_question_to_a_standby_makes_it_look_at_once() -> None:
    store = LeaseStore()
    store.put(LEASE, "pod-b")
    candidate = Candidate(store)
    async with candidate.running():
        await until(lambda: "pod-b" in candidate.words)
        store.put(LEASE, "")

        def answers() -> bool:
            try:
                return bool(candidate.campaign.term())
            except NotLeadingError:
                return False

        await until(answers)


async def test_without_an_api_server_it_says_so() -> None:
    store = LeaseStore()
    store.problem = "403: no right to get leases"
    candidate = Candidate(store)
    async with candidate.running():
        await until(lambda: "no right to get leases" in candidate.words)
        assert candidate.campaign.standing().asked
