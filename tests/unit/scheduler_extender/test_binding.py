"""Binding: exact devices, none sold twice, however many bindings are under way, and what is left of each."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from mcp2026.api.names import GPU_RESOURCE
from mcp2026.scheduler_extender.background import Background
from mcp2026.scheduler_extender.binding import ASSUMED_SECONDS, Binder
from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.cluster_events import Gone, Kind, Seen, observe
from mcp2026.scheduler_extender.errors import (
    BindingRefusedError,
    BindingUncertainError,
    NoRoomError,
    NotLeadingError,
)
from mcp2026.scheduler_extender.leadership import Alone, Leadership, Standing
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from tests.fakes.binding_writer import ApiServer
from tests.fakes.clusters import filled_cache, listed, pod, topology

DGX = "dgx-a100-8xa100"


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Case:
    def __init__(self, background: Background) -> None:
        self.server = ApiServer()
        self.cache = filled_cache([topology("n", DGX)])
        self.clock = Time()
        self.background = background
        self.lead(Alone())

    def lead(self, leadership: Leadership) -> None:
        """Bind with this right to do so."""
        self.binder = Binder(
            self.cache, ScoreMemo(), self.server, self.background, self.clock, leadership=leadership
        )

    def available(self) -> int:
        return available(self.cache)


def available(cache: ClusterCache) -> int:
    gpus = cache.snapshot().nodes["n"].gpus
    assert gpus is not None
    return gpus.available


@pytest.fixture
async def case() -> AsyncIterator[Case]:
    background = Background("choices")
    yield Case(background)
    background.close()


async def test_bindings_under_way_at_once_get_different_gpus(case: Case) -> None:
    args = [case.server.add(f"p{number}", 1) for number in range(8)]
    await asyncio.gather(*map(case.binder.bind, args))
    given = [uuid for bound in case.server.bound.values() for uuid in bound["main"][GPU_RESOURCE]]
    assert len(given) == len(set(given)) == 8
    assert case.available() == 0


async def test_more_than_there_is_is_not_bound_and_says_what_is_missing(case: Case) -> None:
    await case.binder.bind(case.server.add("a", 6))
    with pytest.raises(NoRoomError, match="needs 4 GPUs, 2 of 8 free"):
        await case.binder.bind(case.server.add("b", 4))
    assert set(case.server.bound) == {"a"}


async def test_a_pod_without_gpus_is_bound_without_a_reservation(case: Case) -> None:
    assert await case.binder.bind(case.server.add("a", 0)) == {}
    assert case.server.bound == {"a": {}}


async def test_a_refused_binding_gives_its_gpus_back_at_once(case: Case) -> None:
    case.server.failure = BindingRefusedError("409: already bound")
    with pytest.raises(BindingRefusedError):
        await case.binder.bind(case.server.add("a", 4))
    assert case.available() == 8


async def test_an_uncertain_binding_keeps_its_gpus_for_a_while(case: Case) -> None:
    case.server.failure = BindingUncertainError("no answer")
    with pytest.raises(BindingUncertainError):
        await case.binder.bind(case.server.add("a", 4))
    assert case.available() == 4
    assert case.cache.expire(ASSUMED_SECONDS - 1) == ()
    assert case.cache.expire(ASSUMED_SECONDS) == ("default/a",)
    assert case.available() == 8


async def test_the_watch_confirms_and_nothing_expires_then(case: Case) -> None:
    await case.binder.bind(case.server.add("a", 4))
    case.cache.apply(case.server.as_watched("a"))
    assert case.cache.expire(10 * ASSUMED_SECONDS) == ()
    assert case.available() == 4


async def test_a_pod_seen_before_its_binding_is_answered_is_not_assumed_twice(case: Case) -> None:
    args = case.server.add("a", 4)
    await case.binder.bind(args)
    case.cache.apply(case.server.as_watched("a"))
    case.cache.release("default/a")
    assert case.available() == 4


async def test_a_new_list_without_the_pod_keeps_what_is_assumed(case: Case) -> None:
    await case.binder.bind(case.server.add("a", 4))
    case.cache.apply(listed(Kind.PODS))
    assert case.available() == 4


async def test_the_end_of_a_pod_of_the_same_name_leaves_the_new_one_its_gpus(case: Case) -> None:
    await case.binder.bind(case.server.add("a", 4))
    before = pod("a", 2, "n", "Failed")
    before["metadata"]["uid"] = "uid-of-the-one-before"
    case.cache.apply(Seen(observe(Kind.PODS, json.dumps(before).encode())))
    case.cache.apply(Gone(Kind.PODS, "default/a"))
    assert case.available() == 4


async def test_a_pod_that_was_seen_bound_keeps_its_gpus_however_often_it_is_bound(case: Case) -> None:
    args = case.server.add("a", 4)
    await case.binder.bind(args)
    case.cache.apply(case.server.as_watched("a"))
    case.server.failure = BindingRefusedError("409: already bound")
    with pytest.raises(BindingRefusedError, match="the pod is bound to n already"):
        await case.binder.bind(args)
    assert case.available() == 4


async def test_while_a_binding_is_being_written_the_pod_is_not_bound_again(case: Case) -> None:
    args = case.server.add("a", 4)
    first, second = await asyncio.gather(
        case.binder.bind(args), case.binder.bind(args), return_exceptions=True
    )
    assert first == case.server.bound["a"]
    assert "being bound to n: the API server has not answered yet" in str(second)
    assert case.available() == 4
    assert not case.binder.is_bound(await case.server.read_pod(args)), "it may be asked about anew"


class Leader:
    """Leads in `now`; `lost_when_writing`: another has led since the devices were chosen."""

    terms = 1
    now = 1
    lost_when_writing = False

    def standing(self) -> Standing:
        return Standing(leads=True, asked=True)

    def term(self) -> int:
        return self.now

    @contextmanager
    def writing(self, term: int) -> Iterator[float]:
        if self.lost_when_writing:
            raise NotLeadingError("another may have led")
        assert term == self.now
        yield 4.5


async def test_a_binding_must_end_while_nobody_else_can_lead(case: Case) -> None:
    case.lead(Leader())
    await case.binder.bind(case.server.add("a", 4))
    assert case.server.seconds == 4.5


async def test_a_choice_of_an_earlier_term_is_not_bound_and_reserves_nothing(case: Case) -> None:
    leader = Leader()
    leader.lost_when_writing = True
    case.lead(leader)
    with pytest.raises(NotLeadingError):
        await case.binder.bind(case.server.add("a", 4))
    assert case.server.bound == {}
    assert case.available() == 8
    leader.lost_when_writing = False
    await case.binder.bind(case.server.add("b", 8))
    assert case.available() == 0
