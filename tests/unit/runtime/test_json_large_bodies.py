"""Large bodies and answers are worked on in slices, and whoever asks for little is served between two."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import pytest

from mcp2026.api.serving import Batching, single_version
from mcp2026.runtime.health import Health
from mcp2026.runtime.inference import Call
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics, block_sizes
from mcp2026.runtime.metrics.shared_blocks import create_shared_memory
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.protocol import json_turns
from mcp2026.runtime.protocol.exchange import RequestHead, Response
from mcp2026.runtime.protocol.json_form import numbers
from mcp2026.runtime.protocol.json_turns import InTurns, Turns, at_once, read_list, write_list
from mcp2026.runtime.protocol.rest import RestApi
from tests.unit.runtime.loaded_versions import loaded_model
from tools.models import generate

INFER = RequestHead("POST", "/v1/infer", {})
VALUES = np.random.default_rng(1).standard_normal(40_000).astype(np.float32)
BODY = b'{"input":%b,"shape":[1,%d]}' % (numbers(VALUES), VALUES.size)


class Calls:
    """Takes calls and keeps them."""

    def __init__(self) -> None:
        self.taken: list[Call] = []
        self.cancelled = 0

    def submit(self, call: Call) -> Callable[[], None]:
        self.taken.append(call)
        return self.cancel

    def cancel(self) -> None:
        self.cancelled += 1


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def api(tmp_path, calls: Calls) -> Iterator[RestApi]:
    descriptor = create_shared_memory(block_sizes(1))
    metrics = RuntimeMetrics(descriptor, 1, 1)
    metrics.claim("", (), 0)
    config = single_version(str(generate("anysize", tmp_path)), Batching())
    store = ModelStore()
    store.put(loaded_model(config))
    yield RestApi(Health(), metrics, store, calls, 10**9)  # type: ignore[arg-type]  # takes calls, no more
    os.close(descriptor)


async def rounds_until(condition: Callable[[], object]) -> int:
    """Return how many rounds of the event loop go by until `condition`."""
    for count in range(10_000):
        if condition():
            return count
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


async def test_a_small_request_overtakes_a_large_body_and_the_large_one_is_exact(api, calls) -> None:
    api.begin(INFER, BODY, print)
    answers: list[Response] = []
    api.begin(INFER, b"{}", answers.append)
    assert answers[0].status == 400
    assert not calls.taken
    assert await rounds_until(lambda: calls.taken) > len(BODY) // json_turns.LARGE_BODY
    np.testing.assert_array_equal(calls.taken[0].inputs[0], VALUES[None])


async def test_a_large_body_that_does_not_fit_is_told_what_a_small_one_is(api) -> None:
    answers: list[Response] = []
    api.begin(INFER, BODY.replace(b'"shape":[1,', b'"shape":[2,'), answers.append)
    api.begin(INFER, BODY.replace(b"[", b'["x",', 1), answers.append)
    await rounds_until(lambda: len(answers) == 2)
    assert [json.loads(answer.body)["error"]["field"] for answer in answers] == ["shape", "input[0]"]


async def test_a_caller_may_leave_before_its_body_is_read_and_after(api, calls) -> None:
    leave = api.begin(INFER, BODY, print)
    await asyncio.sleep(0)
    leave()
    leave = api.begin(INFER, BODY, print)
    await rounds_until(lambda: calls.taken)
    leave()
    assert (len(calls.taken), calls.cancelled) == (1, 1)


async def test_what_waits_is_bounded(api, calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_turns, "MAX_WAITING_BYTES", 2 * len(BODY))
    answers: list[Response] = []
    for _ in range(3):
        api.begin(INFER, BODY, answers.append)
    assert [answer.status for answer in answers] == [503]
    await rounds_until(lambda: len(calls.taken) == 2)


async def test_a_large_answer_is_written_in_turns_from_memory_of_its_own(api, calls) -> None:
    answers: list[Response] = []
    api.begin(INFER, BODY, answers.append)
    await rounds_until(lambda: calls.taken)
    output = VALUES[None].copy()
    send = calls.taken[0].encode([output])
    output[:] = 0  # the data plane uses it again
    send()
    assert await rounds_until(lambda: answers) >= VALUES.size // json_turns.LARGE_VALUES
    document = json.loads(answers[0].body)
    np.testing.assert_array_equal(np.array(document["output"], np.float32), VALUES)
    assert document["shape"] == [1, VALUES.size]


async def test_one_work_that_breaks_does_not_stop_the_others() -> None:
    turns = Turns()
    seen = []

    def work(number: int) -> InTurns[None]:
        yield
        seen.append(number)

    def broken() -> InTurns[None]:
        yield
        raise ValueError("broken")

    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    for one in (work(1), broken(), work(2)):
        assert turns.add(one, 1)
    await rounds_until(lambda: 2 in seen)
    assert seen == [1, 2]
    assert len(reported) == 1


@pytest.mark.parametrize("text", [b'["1"]', b"[[1]]", b'[{"a":1}]', b"[true]", b"[1e39]", b"3", b"null"])
def test_what_is_no_flat_list_of_numbers_is_left_to_the_precise_form(text: bytes) -> None:
    decode = msgspec.json.Decoder(list[float]).decode
    assert at_once(read_list(text, np.dtype(np.float32), decode)) is None


@pytest.mark.parametrize("size", [0, 1, json_turns.LARGE_VALUES + 1, 2 * json_turns.LARGE_VALUES])
def test_slices_of_an_answer_are_the_answer(size: int) -> None:
    array = VALUES[:size].copy()
    array[: size // 2 : 97] = np.nan
    assert at_once(write_list(numbers, array)) == numbers(array)
