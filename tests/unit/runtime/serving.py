"""A service in this process, with real models, that keeps what became of every call."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from mcp2026.api.scheduling_context import SchedulingContext
from mcp2026.api.serving import Batching, ServedVersion, ServingConfig
from mcp2026.runtime.errors import RequestError
from mcp2026.runtime.execution.job import Job
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.inference import Call, InferenceService
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics
from mcp2026.runtime.model.loaded import LoadedVersion, ServedModel
from tests.unit.runtime.loaded_versions import loaded_model, metrics_for

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
        context: SchedulingContext | None = None,
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
            context=context,
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


Serve = Callable[..., Serving]
"""Starts a service that the test's end closes."""
