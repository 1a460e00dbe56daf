"""The data plane with real models: each caller gets its own rows, or its own error, exactly once."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mcp2026.api.serving import (
    Batching,
    Execution,
    Priorities,
    QueuePolicy,
    ServedVersion,
    ServingConfig,
)
from mcp2026.runtime.batching.scheduler import LATE
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.execution.job import Job
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.inference import Call, InferenceService
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics
from mcp2026.runtime.model.loaded import LoadedVersion, ServedModel
from tests.unit.runtime.loaded_versions import loaded_model, metrics_for
from tools.models import generate

SECOND = 1_000_000_000


def identity(folder: Path, kind: int, shape: tuple[Any, ...] = ("N", 3), out: Any = None) -> Path:
    """Write a model that answers with its input."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "identity",
        [value("x", kind, shape)],
        [value("y", kind, out or shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    path = folder / "identity.onnx"
    onnx.save(model, path)
    return path


def some_rows_only(folder: Path) -> Path:
    """Write a model that leaves out rows whose first value is -10 or less; those of the probe never are."""
    value, node = helper.make_tensor_value_info, helper.make_node
    lowest = helper.make_tensor("v", TensorProto.FLOAT, [1], [-9.0])
    constant = {"zero": [0], "one": [1], "minus_one": [-1]}
    graph = helper.make_graph(
        [
            node("Gather", ["x", "zero"], ["first"], axis=1),
            node("Reshape", ["first", "minus_one"], ["flat"]),
            node("ConstantOfShape", ["one"], ["limit"], value=lowest),
            node("Greater", ["flat", "limit"], ["keep"]),
            node("Compress", ["x", "keep"], ["y"], axis=0),
        ],
        "some_rows_only",
        [value("x", TensorProto.FLOAT, ["N", 3])],
        [value("y", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor(name, TensorProto.INT64, [1], values) for name, values in constant.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    path = folder / "some.onnx"
    onnx.save(model, path)
    return path


def config(path: Path, name: str = "m", **fields: Any) -> ServingConfig:
    fields.setdefault("batching", Batching(max_batch_size=8))
    return ServingConfig(name, (ServedVersion("1", str(path)),), **fields)


class _Call(Call):
    take: Callable[[list[Array]], Callable[[], None]]
    give_up: Callable[[RequestError], None]

    def encode(self, outputs: list[Array]) -> Callable[[], None]:
        return self.take(outputs)

    def fail(self, error: RequestError) -> None:
        self.give_up(error)


class Serving:
    """A service, and what became of every call that was submitted."""

    def __init__(self, *configs: ServingConfig, queued_rows: int = 1_000) -> None:
        self.metrics: RuntimeMetrics = metrics_for(*configs)
        self.service = InferenceService(
            queued_rows, 1 << 30, self.metrics, asyncio.get_running_loop(), 30 * SECOND
        )
        self.models: dict[str, ServedModel] = {}
        for one in configs:
            self.models[one.model] = loaded_model(one, self.metrics)
            self.service.serve(self.models[one.model])
        self.jobs: list[Job] = []
        report = self.service._report
        self.service._report = lambda job: (self.jobs.append(job), report(job))[1]  # type: ignore[method-assign]
        self._entered = threading.Event()
        self.told: list[asyncio.Future[Any]] = []
        self.answered: list[int] = []
        """Calls by number, in the order in which they were answered."""

    @property
    def version(self) -> LoadedVersion:
        return next(iter(self.models.values())).versions["1"]

    def submit(
        self,
        array: Array,
        *,
        model: str | None = None,
        timeout: float = 30.0,
        encode: Callable[[list[Array]], Any] | None = None,
        priority: int = 0,
        tenant: str = "",
    ) -> Callable[[], None]:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()
        number = len(self.told)
        self.told.append(outcome)

        def take(outputs: list[Array]) -> Callable[[], None]:
            copies = (encode or (lambda arrays: [array.copy() for array in arrays]))(outputs)
            return lambda: (self.answered.append(number), outcome.set_result(copies))[1]

        version = self.models[model].versions["1"] if model else self.version
        rows = len(array) if version.signature.shared else 1
        now = int(loop.time() * 1e9)
        call = _Call(
            version,
            (array,),
            rows,
            now,
            int(timeout * SECOND),
            priority,
            tenant,
            take,
            outcome.set_exception,
        )
        return self.service.submit(call)

    async def outcomes(self) -> list[Any]:
        """Arrays of the first output, or error codes."""
        done = await asyncio.wait_for(asyncio.gather(*self.told, return_exceptions=True), 60)
        return [one.code if isinstance(one, RequestError) else one[0] for one in done]

    def block(self) -> threading.Event:
        """Let the engine's next run wait for the event that is returned; see `runs`."""
        gate = threading.Event()
        run = self.version.run

        def wait_first(binding: Any) -> None:
            self._entered.set()
            gate.wait(60)
            run(binding)

        self.version.run = wait_first  # type: ignore[method-assign]
        return gate

    async def runs(self) -> None:
        """Wait until the engine has begun a run that is blocked."""
        assert await asyncio.get_running_loop().run_in_executor(None, self._entered.wait, 60)

    def count(self, line: str) -> float:
        text = self.metrics.exposition().decode()
        return sum(float(each.rsplit(" ", 1)[1]) for each in text.splitlines() if each.startswith(line))


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Serving]]:
    started: list[Serving] = []

    def start(*configs: ServingConfig, **limits: int) -> Serving:
        started.append(Serving(*configs, **limits))
        return started[-1]

    yield start
    for serving in started:
        serving.service.close()


Serve = Callable[..., Serving]


async def test_callers_of_one_batch_get_their_own_rows(serve: Serve, tmp_path: Path) -> None:
    serving = serve(config(generate("add", tmp_path)))
    for rows in (1, 3, 2):
        serving.submit(np.full((rows, 16), rows, np.float32))
    for rows, output in zip((1, 3, 2), await serving.outcomes(), strict=True):
        np.testing.assert_array_equal(output, np.full((rows, 16), rows + 1))
    assert [job.rows for job in serving.jobs] == [6]
    assert serving.count('mcp2026_requests_total{code="200"') == 3


async def test_a_request_larger_than_a_run_is_answered_once_with_all_its_rows(
    serve: Serve, tmp_path: Path
) -> None:
    serving = serve(config(generate("add", tmp_path)))
    large = np.arange(37 * 16, dtype=np.float32).reshape(37, 16)
    serving.submit(np.zeros((1, 16), np.float32))
    serving.submit(large)
    serving.submit(np.ones((2, 16), np.float32))
    first, whole, last = await serving.outcomes()
    np.testing.assert_array_equal(whole, large + 1)
    np.testing.assert_array_equal(first, np.ones((1, 16)))
    np.testing.assert_array_equal(last, np.full((2, 16), 2))
    assert [job.rows for job in serving.jobs] == [8] * 5
    assert serving.count('mcp2026_requests_total{code="200"') == 3


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


async def test_a_batch_is_filled_up_with_zeros_that_nobody_sees(serve: Serve, tmp_path: Path) -> None:
    execution = Execution(padded_batch_sizes=(4, 8))
    serving = serve(config(generate("add", tmp_path), execution=execution))
    for rows in (8, 3, 5):
        serving.told.clear()
        serving.submit(np.full((rows, 16), 7, np.float32))
        (output,) = await serving.outcomes()
        np.testing.assert_array_equal(output, np.full((rows, 16), 8))
    assert [(job.rows, job.run_rows) for job in serving.jobs] == [(8, 8), (3, 4), (5, 8)]
    job = Job(serving.version, ((16,),), [(np.ones((3, 16), np.float32),)], 3, 4)
    job.assemble()
    assert job._bound is not None
    np.testing.assert_array_equal(job._bound.inputs[0], [[1] * 16] * 3 + [[0] * 16])
    job.run()
    assert len(job.outputs[0]) == 4


async def test_padding_may_go_beyond_the_largest_batch(serve: Serve, tmp_path: Path) -> None:
    execution = Execution(padded_batch_sizes=(16,))
    serving = serve(config(generate("add", tmp_path), execution=execution))
    serving.submit(np.full((8, 16), 1, np.float32))
    (output,) = await serving.outcomes()
    assert output.shape == (8, 16)
    assert [(job.rows, job.run_rows) for job in serving.jobs] == [(8, 16)]


@pytest.mark.parametrize("padded", [(), (8,)])
async def test_text_goes_through_whole_and_bad_text_fails_alone(
    serve: Serve, tmp_path: Path, padded: tuple[int, ...]
) -> None:
    execution = Execution(padded_batch_sizes=padded)
    serving = serve(config(identity(tmp_path, TensorProto.STRING), execution=execution))
    good = np.array([[b"", "grün".encode(), b"a\0b"]], object)
    serving.submit(good)
    serving.submit(np.array([[b"x", b"\xff", b"y"]], object))
    serving.submit(np.concatenate([good, good]))
    one, bad, two = await serving.outcomes()
    assert one.tolist() == good.tolist()
    assert two.tolist() == good.tolist() * 2
    assert bad == ErrorCode.EXECUTION_FAILED
    assert serving.count('mcp2026_request_failures_total{model="m",reason="execution_failed"') == 1


@pytest.mark.parametrize("out", [("N", 3), ("N", "M")], ids=["bound ahead", "allocated by the run"])
async def test_bfloat16_goes_through_bit_by_bit(serve: Serve, tmp_path: Path, out: tuple[Any, ...]) -> None:
    serving = serve(config(identity(tmp_path, TensorProto.BFLOAT16, out=out)))
    bits = np.array([[0x3F80, 0xFF80, 0x0001], [0x8000, 0x7F7F, 0x4049]], np.uint16)
    serving.submit(bits)
    serving.submit(bits[:1])
    both, first = await serving.outcomes()
    np.testing.assert_array_equal(both, bits)
    np.testing.assert_array_equal(first, bits[:1])
    assert both.dtype == np.uint16


async def test_an_output_of_the_wrong_length_costs_only_its_own_caller(serve: Serve, tmp_path: Path) -> None:
    serving = serve(config(some_rows_only(tmp_path)))
    good, bad = np.ones((1, 3), np.float32), np.full((1, 3), -10, np.float32)
    for array in (good, bad, good):
        serving.submit(array)
    one, wrong, two = await serving.outcomes()
    np.testing.assert_array_equal(one, good)
    np.testing.assert_array_equal(two, good)
    assert wrong == ErrorCode.EXECUTION_FAILED
    assert [job.rows for job in serving.jobs] == [3, 1, 1, 1]


async def test_a_large_request_with_a_bad_part_fails_once(serve: Serve, tmp_path: Path) -> None:
    serving = serve(config(some_rows_only(tmp_path)))
    large = np.ones((30, 3), np.float32)
    large[13] = -10
    serving.submit(large)
    serving.submit(np.ones((1, 3), np.float32))
    failed, small = await serving.outcomes()
    assert failed == ErrorCode.EXECUTION_FAILED
    assert small.shape == (1, 3)
    assert serving.count('mcp2026_request_failures_total{model="m",reason="execution_failed"') == 1


async def test_an_answer_that_cannot_be_encoded_costs_only_its_own_caller(
    serve: Serve, tmp_path: Path
) -> None:
    serving = serve(config(generate("add", tmp_path)))

    def broken(_outputs: list[Array]) -> Any:
        raise KeyError("broken")

    def impossible(_outputs: list[Array]) -> Any:
        raise RequestError(ErrorCode.INVALID_ARGUMENT, "no room for the answer")

    x = np.zeros((1, 16), np.float32)
    serving.submit(x)
    serving.submit(x, encode=broken)
    serving.submit(x, encode=impossible)
    serving.submit(x)
    first, internal, refused, last = await serving.outcomes()
    assert (internal, refused) == (ErrorCode.INTERNAL, ErrorCode.INVALID_ARGUMENT)
    assert first.shape == last.shape == (1, 16)


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


async def test_many_callers_of_a_short_model_are_all_answered_without_a_thread(
    serve: Serve, tmp_path: Path
) -> None:
    serving = serve(config(generate("add", tmp_path)))
    for _ in range(200):
        serving.told.clear()
        for value in range(5):
            serving.submit(np.full((1, 16), value, np.float32))
        outputs = await serving.outcomes()
        assert [output[0, 0] for output in outputs] == [1, 2, 3, 4, 5]
    assert sum(job.batch.inline for job in serving.jobs) > 100
