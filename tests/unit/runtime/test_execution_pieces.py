"""Buffers that are reused, the CPUs of the cgroup, numbers that processes share, the table of errors."""

import os
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest

from mcp2026.api.serving import Batching
from mcp2026.runtime.errors import STATUS, ErrorCode
from mcp2026.runtime.execution.background_share import BackgroundShare
from mcp2026.runtime.execution.cpu_quota import usable_cpus
from mcp2026.runtime.execution.engine import Engine
from mcp2026.runtime.execution.job import Job
from mcp2026.runtime.execution.tensor_cache import TensorCache
from mcp2026.runtime.model.loaded import LoadedVersion
from tests.unit.runtime.loaded_versions import loaded_version
from tools.models import generate


def load(tmp_path: Path, name: str = "add", **batching: object) -> LoadedVersion:
    path = str(generate(name, tmp_path))
    return loaded_version(path, Batching(**batching))  # type: ignore[arg-type]


def run(version: LoadedVersion, *rows: int) -> tuple[Job, int]:
    parts = [(np.full((count, 16), count, np.float32),) for count in rows]
    job = Job(version, ((16,),), parts, sum(rows))
    job.assemble()
    assert job._bound is not None
    address = job._bound.inputs[0].ctypes.data
    job.run()
    assert job.error is None
    return job, address


def test_the_cache_reuses_the_same_memory_for_any_number_of_rows(tmp_path: Path) -> None:
    version = load(tmp_path)
    addresses = set()
    for rows in ((1,), (2, 3), (32,), (1,), (4, 4)):
        job, address = run(version, *rows)
        expected = np.concatenate([np.full((count, 16), count + 1) for count in rows])
        np.testing.assert_array_equal(job.outputs[0], expected)
        job.release()
        addresses.add(address)
    assert len(addresses) == 1
    assert (version.tensors.misses, version.tensors.hits) == (1, 4)


def test_buffers_in_use_are_never_handed_out_twice(tmp_path: Path) -> None:
    version = load(tmp_path)
    first, address = run(version, 2)
    second, other = run(version, 3)
    assert address != other
    np.testing.assert_array_equal(first.outputs[0], np.full((2, 16), 3))
    first.release()
    third, again = run(version, 1)
    assert again == address
    np.testing.assert_array_equal(second.outputs[0], np.full((3, 16), 4))
    for job in (second, third):
        job.release()


def test_without_the_cache_every_batch_allocates(tmp_path: Path) -> None:
    version = load(tmp_path, tensor_cache=False)
    for _ in range(3):
        job, _ = run(version, 1)
        job.release()
    assert (version.tensors.misses, version.tensors.hits) == (3, 0)


def test_idle_buffers_are_bounded_and_the_longest_idle_goes_first() -> None:
    class FakeArena:
        nbytes = 100

        def __init__(self, shapes: object) -> None:
            self.shapes = shapes

    cache = TensorCache(FakeArena, enabled=True, idle_bytes=250)  # type: ignore[arg-type]
    arenas = [cache.take(((n,),)) for n in range(3)]
    for arena in arenas:
        cache.give_back(arena)
    assert cache.idle_bytes == 200
    assert cache.take(((0,),)) is not arenas[0]
    assert cache.take(((2,),)) is arenas[2]


class Work:
    """Jobs in the order in which they are to run; those of `ahead` may be assembled before."""

    def __init__(self, jobs: list[Job], ahead: list[Job]) -> None:
        self.jobs = list(jobs)
        self.ahead = list(ahead)
        self.done: queue.SimpleQueue[Job] = queue.SimpleQueue()

    def next_job(self, now: int) -> Job | None:
        return self.jobs.pop(0) if self.jobs else None

    def look_again_at(self) -> int | None:
        return None

    def next_ahead(self, now: int) -> Job | None:
        return self.ahead.pop(0) if self.ahead else None

    def ran(self, job: Job) -> None:
        self.done.put(job)


def test_jobs_run_in_order_and_inputs_are_assembled_while_the_engine_is_busy(tmp_path: Path) -> None:
    gate = threading.Event()
    blocker, version = load(tmp_path), load(tmp_path, name="anysize")
    blocker.run = lambda _binding: gate.wait(60) and None  # type: ignore[method-assign]
    large = np.ones((1, 200_000), np.float32)
    jobs = [Job(blocker, ((16,),), [(np.ones((1, 16), np.float32),)], 1)]
    jobs += [Job(version, ((200_000,),), [(large,), (large,)], 2) for _ in range(2)]
    work = Work(jobs, jobs[1:])
    engine = Engine(work, BackgroundShare())
    deadline = time.monotonic() + 60
    while jobs[1].parts or jobs[2].parts:  # emptied when they are assembled
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert work.done.empty()
    gate.set()
    finished = [work.done.get(timeout=60) for _ in jobs]
    engine.close()
    assert finished == jobs
    for job in finished[1:]:
        np.testing.assert_array_equal(job.outputs[0], np.full((2, 200_000), 2))


def test_a_thread_that_waits_takes_what_it_is_woken_for(tmp_path: Path) -> None:
    version = load(tmp_path)
    work = Work([], [])
    engine = Engine(work, BackgroundShare())
    for _ in range(20):
        job = Job(version, ((16,),), [(np.ones((1, 16), np.float32),)], 1)
        with engine.lock:
            work.jobs.append(job)
            engine.wake()
        assert work.done.get(timeout=60) is job
    engine.close()


def test_assembling_happens_once_whoever_comes_first(tmp_path: Path) -> None:
    version = load(tmp_path)
    job = Job(version, ((16,),), [(np.ones((1, 16), np.float32),)], 1)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: job.assemble(), range(32)))
    assert version.tensors.misses == 1


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu.max": "9900000 100000\n"}, None),
        ({}, None),
    ],
    ids=["one cpu", "half a cpu", "no limit", "v1", "v1 no limit", "more than the machine", "no cgroup"],
)
def test_the_cgroup_bounds_the_cpus(tmp_path: Path, files: dict[str, str], expected: int | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cpus(tmp_path) == (expected or len(os.sched_getaffinity(0)))


def test_every_error_has_a_status_that_grpc_knows() -> None:
    assert set(STATUS) == set(ErrorCode)
    for status in STATUS.values():
        assert grpc.StatusCode[status.grpc]
        assert 400 <= status.http < 600
        assert (status.retry_after_seconds is not None) == (status.http == 503)
