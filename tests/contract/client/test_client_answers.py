"""Both clients against the real server: every protocol, TCP and Unix sockets, every datatype, every error."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from mcp2026.client import (
    AsyncClient,
    Client,
    InvalidRequestError,
    ModelNotFoundError,
    ModelState,
    ProtocolError,
    Tensor,
    TensorMetadata,
)
from tests.contract.client.both_clients import Connect
from tests.contract.client.conftest import Echoes

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)
ARRAYS: dict[str, np.ndarray] = {
    "BOOL": np.array([[True, False, True]]),
    "FP16": np.array([[1.5, -0.0, np.inf]], np.float16),
    "FP32": np.array([[1.1, -0.0, np.nan]], np.float32),
    "FP64": np.array([[1.1, 1e300, -np.inf]]),
    **{
        f"{sign}INT{bits}": np.array([[np.iinfo(dtype).min, 1, np.iinfo(dtype).max]], dtype)
        for sign, kind in (("", "int"), ("U", "uint"))
        for bits in (8, 16, 32, 64)
        for dtype in (np.dtype(f"{kind}{bits}"),)
    },
}


def test_the_server_and_its_models_are_described(url: str, connect: Connect) -> None:
    client = connect(url)
    assert client.ready()
    assert client.ready("sums")
    assert not client.ready("nothing")
    assert ModelState("sums", "1", "READY", "") in client.models()
    described = client.model("sums")
    assert (described.name, described.versions) == ("sums", ("1",))
    assert described.inputs == (TensorMetadata("a", "FP32", (-1, 4)), TensorMetadata("b", "FP32", (-1, 4)))
    assert {spec.name for spec in described.outputs} == {"sum", "difference"}


def test_outputs_come_by_name(url: str, connect: Connect) -> None:
    client = connect(url)
    a, b = np.float32([[1, 2, 3, 4]]), np.float32([[4, 3, 2, 1]])
    result = client.infer(
        {"a": a, "b": b}, model="sums", version="1", priority=1, tenant="acme", timeout=20, request_id="r-1"
    )
    np.testing.assert_array_equal(result["sum"], a + b)
    np.testing.assert_array_equal(result["difference"], a - b)
    assert (result.model, result.version, result.request_id) == ("sums", "1", "r-1")
    result["sum"][0, 0] = 7  # it is the caller's
    one = client.infer({"a": a, "b": b}, model="sums", outputs=["difference"])
    assert list(one) == ["difference"]


def test_numbers_of_every_datatype(echoes: Echoes, protocol: str, connect: Connect) -> None:
    client = connect(echoes.url(protocol))
    for datatype, array in ARRAYS.items():
        result = client.infer({"x": array}, model=f"echo_{datatype.lower()}")["y"]
        assert (datatype, result.dtype, result.shape) == (datatype, array.dtype, array.shape)
        assert result.tobytes() == array.tobytes()


def test_text_and_bf16(echoes: Echoes, protocol: str, connect: Connect) -> None:
    client = connect(echoes.url(protocol))
    words = client.infer({"x": [["a", "", "größer"]]}, model="echo_bytes")
    assert words["y"].tolist() == [[b"a", b"", "größer".encode()]]
    assert words.text("y").tolist() == [["a", "", "größer"]]
    numbers = client.infer({"x": Tensor([[1.0, 1.001, -3e38]], "BF16")}, model="echo_bf16")["y"]
    assert numbers.dtype == np.float32
    np.testing.assert_allclose(numbers, [[1.0, 1.0, -3e38]], rtol=2**-8)


def test_tensors_larger_than_every_buffer(url: str, connect: Connect) -> None:
    array = np.random.default_rng(1).random((1, 2_000_000), np.float32)
    result = connect(url).infer({"x": array}, model="wide")["y"]
    np.testing.assert_array_equal(result, array)


@pytest.mark.parametrize(
    ("inputs", "named", "kind", "field", "allowed"),
    [
        ({"x": ROWS}, {"model": "nothing"}, ModelNotFoundError, None, None),
        ({"x": ROWS}, {"version": "9"}, ModelNotFoundError, None, None),
        ({"x": ROWS.astype(np.float64)}, {}, InvalidRequestError, "inputs.x.datatype", "FP32"),
        ({"z": ROWS}, {}, InvalidRequestError, "inputs", "x"),
        ({}, {}, InvalidRequestError, "inputs", None),
        ({"x": ROWS}, {"outputs": ["z"]}, InvalidRequestError, None, None),
    ],
)
def test_what_the_server_refuses_is_the_same_error_everywhere(
    inputs: Any,
    named: Any,
    kind: Any,
    field: Any,
    allowed: Any,
    echoes: Echoes,
    protocol: str,
    connect: Connect,
) -> None:
    with pytest.raises(kind) as refused:
        connect(echoes.url(protocol)).infer(inputs, **{"model": "echo_fp32", **named})
    if field is not None:
        assert refused.value.field == field
    if allowed is not None:
        assert refused.value.allowed == allowed
    assert refused.value.status in (400, 404, "INVALID_ARGUMENT", "NOT_FOUND")


def test_an_answer_larger_than_allowed_is_refused_and_the_next_one_read(url: str, connect: Connect) -> None:
    client = connect(url, max_answer_bytes=4_000)
    for _ in range(2):
        with pytest.raises(ProtocolError, match="max_answer_bytes"):
            client.infer({"x": np.zeros((1, 2_000), np.float32)}, model="wide")
        assert client.infer({"x": ROWS}, model="echo_fp32")["y"].shape == (2, 3)


def test_a_client_that_is_closed_says_so(url: str, connect: Connect) -> None:
    client = connect(url)
    assert client.ready()
    client.close() if isinstance(client, Client) else client.run(lambda one: one.close())
    with pytest.raises(ConnectionError, match="the client is closed"):
        client.infer({"x": ROWS}, model="echo_fp32")


def test_many_threads_share_a_client(url: str) -> None:
    start = threading.Barrier(8)

    def ask(number: int) -> bool:
        start.wait(60)
        for step in range(10):
            row = np.float32([[number, step, number * step]])
            if not np.array_equal(client.infer({"x": row}, model="echo_fp32")["y"], row):
                return False
        return True

    with Client(url, batching=False, max_connections=4) as client, ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(8)))


async def test_many_tasks_share_a_client(url: str) -> None:
    async def ask(number: int) -> bool:
        row = np.float32([[number, 0, -number]])
        return np.array_equal((await client.infer({"x": row}, model="echo_fp32"))["y"], row)

    async with AsyncClient(url, max_connections=4) as client:
        assert all(await asyncio.gather(*(ask(number) for number in range(64))))


async def test_a_task_that_is_cancelled_leaves_the_client_usable(url: str) -> None:
    async with AsyncClient(url) as client:
        await client.infer({"x": ROWS}, model="echo_fp32")
        for _ in range(3):
            asking = asyncio.create_task(client.infer({"x": ROWS}, model="echo_fp32"))
            await asyncio.sleep(0)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert (await client.infer({"x": ROWS}, model="echo_fp32"))["y"].shape == (2, 3)
