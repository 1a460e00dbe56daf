"""Who waits, leaves, comes too late or finds no room is told so once, and the others are served."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import TensorProto

from mcp2026.api.serving import Execution, Priorities, QueuePolicy
from mcp2026.runtime.batching.scheduler import LATE
from mcp2026.runtime.errors import ErrorCode
from tests.unit.runtime.serving import Serve, config, identity
from tools.models import generate


async def test_a_large_request_whose_caller_leaves_runs_no_further(serve: Serve, tmp_path: Path) -> None:
    serving = serve(config(generate("add", tmp_path)))
    gate = serving.block()
    leave = serving.submit(np.zeros((80, 16), np.float32))
    await serving.runs()
    leave()
    gate.set()
    serving.told.clear()
    serving.submit(np.ones((1, 16), np.float32))
    await serving.outcomes()
    assert sum(job.rows for job in serving.jobs) < 40
    assert serving.count("mcp2026_requests_cancelled_total") == 1


async def test_a_caller_that_leaves_while_its_neighbour_is_answered_is_told_nothing(
    serve: Serve, tmp_path: Path
) -> None:
    serving = serve(config(generate("add", tmp_path)))
    leave: list[Callable[[], None]] = []
    x = np.zeros((1, 16), np.float32)
    serving.submit(x, encode=lambda outputs: (leave[0](), outputs)[1])
    leave.append(serving.submit(x))
    serving.submit(x)
    gone = serving.told.pop(1)
    await serving.outcomes()
    assert not gone.done()
    assert serving.count("mcp2026_requests_cancelled_total") == 1
    leave[0]()  # any time later does no harm
    assert serving.count("mcp2026_requests_cancelled_total") == 1


async def test_a_deadline_is_kept_while_the_engine_is_stuck(serve: Serve, tmp_path: Path) -> None:
    serving = serve(config(generate("add", tmp_path)))
    gate = serving.block()
    x = np.zeros((1, 16), np.float32)
    serving.submit(x, timeout=0.5)
    await serving.runs()
    serving.submit(x, timeout=0.01)  # waits
    assert await serving.outcomes() == [ErrorCode.DEADLINE_EXCEEDED] * 2
    gate.set()
    assert serving.count('mcp2026_request_failures_total{model="m",reason="deadline_exceeded"') == 2


async def test_the_model_sets_the_timeout_of_whoever_names_none(serve: Serve, tmp_path: Path) -> None:
    queue = QueuePolicy(default_timeout_ms=20, max_timeout_ms=60)
    serving = serve(config(generate("add", tmp_path), queue=queue))
    gate = serving.block()
    x = np.zeros((1, 16), np.float32)
    serving.submit(x)  # names none
    serving.submit(x, timeout=20.0)  # more than the most
    assert await serving.outcomes() == [ErrorCode.DEADLINE_EXCEEDED] * 2
    gate.set()


async def test_a_late_request_is_served_after_all_others_if_the_model_says_so(
    serve: Serve, tmp_path: Path
) -> None:
    queue = QueuePolicy(default_timeout_ms=10, timeout_action="Delay")
    priorities = Priorities(levels=2, default=1, queues={2: QueuePolicy()})
    serving = serve(
        config(
            generate("add", tmp_path),
            queue=queue,
            priorities=priorities,
            execution=Execution(max_rows=1),
        )
    )
    gate = serving.block()
    x = np.zeros((1, 16), np.float32)
    serving.submit(x, priority=2)
    await serving.runs()
    serving.submit(x)
    while serving.service._scheduler.all_unsettled()[-1].level < LATE:  # noqa: ASYNC110 (nobody is told)
        await asyncio.sleep(0.001)
    serving.submit(x, priority=2)
    await asyncio.sleep(0)
    gate.set()
    outcomes = await serving.outcomes()
    assert all(isinstance(outcome, np.ndarray) for outcome in outcomes)
    assert serving.answered == [0, 2, 1]


async def test_a_full_queue_refuses_with_one_reason_and_each_level_may_have_its_own(
    serve: Serve, tmp_path: Path
) -> None:
    priorities = Priorities(levels=2, default=2, queues={1: QueuePolicy(max_rows=1)})
    serving = serve(config(generate("add", tmp_path), queue=QueuePolicy(max_rows=2), priorities=priorities))
    gate = serving.block()
    x = np.zeros((1, 16), np.float32)
    serving.submit(x)
    await serving.runs()
    for priority in (2, 2, 2, 1, 1):
        serving.submit(x, priority=priority)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    refused = [number for number, outcome in enumerate(serving.told) if outcome.done()]
    assert refused == [3, 5]
    gate.set()
    assert [each for each in await serving.outcomes() if isinstance(each, ErrorCode)] == [
        ErrorCode.QUEUE_FULL
    ] * 2
    assert serving.count('mcp2026_request_failures_total{model="m",reason="queue_full"') == 2


async def test_models_share_the_engine_and_a_retired_one_still_answers_what_it_took(
    serve: Serve, tmp_path: Path
) -> None:
    first = config(generate("add", tmp_path), "first", execution=Execution(instances=2))
    second = config(identity(tmp_path, TensorProto.FLOAT), "second")
    serving = serve(first, second)
    gate = serving.block()
    serving.submit(np.zeros((1, 16), np.float32), model="first")
    await serving.runs()
    serving.submit(np.full((1, 3), 5, np.float32), model="second")
    assert (await asyncio.wait_for(serving.told[1], 60))[0].tolist() == [[5, 5, 5]]  # on the other thread
    serving.submit(np.zeros((1, 16), np.float32), model="first")
    serving.service.retire("first")
    gate.set()
    outcomes = await serving.outcomes()
    assert [outcome.shape for outcome in outcomes] == [(1, 16), (1, 3), (1, 16)]


async def test_whatever_is_left_when_the_drain_ends_is_told_so_once(serve: Serve, tmp_path: Path) -> None:
    serving = serve(config(generate("add", tmp_path)))
    gate = serving.block()
    x = np.zeros((1, 16), np.float32)
    serving.submit(x)
    await serving.runs()
    serving.submit(x)
    serving.service.drain()
    serving.submit(x)
    serving.service.abandon()
    assert await serving.outcomes() == [ErrorCode.DRAINING] * 3
    gate.set()
    await asyncio.get_running_loop().run_in_executor(None, serving.service.close)
    assert serving.answered == []
