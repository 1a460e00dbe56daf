"""Each key once, by one worker at a time, later and later after failures."""

import asyncio

import pytest

from mcp2026.operator.work_queue import Backoff, WorkQueue

SOON = 1.0


async def take(queue: WorkQueue[str]) -> str:
    return await asyncio.wait_for(queue.take(), SOON)


async def nothing_comes(queue: WorkQueue[str]) -> bool:
    try:
        await asyncio.wait_for(queue.take(), 0.02)
    except TimeoutError:
        return True
    return False


async def test_a_key_that_is_added_twice_comes_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("a")
    assert await take(queue) == "a"
    queue.done("a")
    assert await nothing_comes(queue)


async def test_keys_come_in_the_order_in_which_they_were_added() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in "abc":
        queue.add(key)
    assert [await take(queue) for _ in range(3)] == ["a", "b", "c"]


async def test_a_worker_that_waits_is_woken() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiter = asyncio.create_task(take(queue))
    await asyncio.sleep(0)
    queue.add("a")
    assert await waiter == "a"


async def test_two_waiting_workers_get_two_keys() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiters = [asyncio.create_task(take(queue)) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    queue.add("b")
    assert sorted(await asyncio.gather(*waiters)) == ["a", "b"]


async def test_a_key_in_work_waits_for_its_worker_and_is_not_lost() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await take(queue)
    queue.add("a")
    assert await nothing_comes(queue)
    queue.done("a")
    assert await take(queue) == "a"


async def test_no_two_workers_ever_have_the_same_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    held: set[str] = set()
    served = 0

    async def worker() -> None:
        nonlocal served
        while True:
            key = await queue.take()
            assert key not in held
            held.add(key)
            await asyncio.sleep(0)
            held.discard(key)
            served += 1
            queue.done(key)

    workers = [asyncio.create_task(worker()) for _ in range(8)]
    for _ in range(200):
        for key in "abc":
            queue.add(key)
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    assert not [task for task in workers if task.done()]
    for task in workers:
        task.cancel()
    assert served >= 100


async def test_after_a_failure_the_key_comes_back_later() -> None:
    queue: WorkQueue[str] = WorkQueue(Backoff(first=0.05, most=1))
    queue.add("a")
    await take(queue)
    assert queue.failed("a") == 0.05
    queue.done("a")
    assert await nothing_comes(queue)
    assert await take(queue) == "a"


async def test_success_forgets_the_failures() -> None:
    queue: WorkQueue[str] = WorkQueue()
    assert [queue.failed("a") for _ in range(3)] == [0.05, 0.1, 0.2]
    queue.succeeded("a")
    assert queue.failed("a") == 0.05


async def test_of_several_times_the_earliest_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 60)
    queue.add_after("a", 0.01)
    queue.add_after("a", 60)
    assert await take(queue) == "a"
    queue.done("a")
    assert await nothing_comes(queue)


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 0.05), (2, 0.1), (5, 0.8), (11, 51.2), (12, 60.0), (10_000, 60.0)]
)
def test_the_backoff_doubles_up_to_a_minute(failures: int, seconds: float) -> None:
    assert Backoff().delay(failures) == pytest.approx(seconds)
