"""What a client is made with is checked at once, and a call's arguments before anything is sent."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from mcp2026.client import AsyncClient, BatchingOffer, Client, InvalidRequestError

URL = "http://127.0.0.1:1"
GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"max_connections": 0}, "max_connections"),
        ({"max_answer_bytes": 0}, "max_answer_bytes"),
        ({"batching": BatchingOffer(65_536)}, "max_delay_ms"),
        ({"batching": BatchingOffer(1, 0)}, "min_size"),
        ({"headers": {"host": "x"}}, "headers"),
        ({"headers": {"Content-Length": "1"}}, "headers"),
        ({"headers": {"grpc-timeout": "1S"}}, "headers"),
        ({"headers": {"a b": "x"}}, "headers"),
        ({"headers": {"a": "x\r\ny: z"}}, "headers"),
        ({"headers": {"a": "ü"}}, "headers"),
        ({"headers": {"a": ""}}, "headers"),
    ],
)
def test_arguments_out_of_range_are_refused(kind: Any, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        kind(URL, **wrong)


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"traceparent": "x"}, {"tenant": ""}, {"model": ""}])
def test_calls_out_of_range_are_refused_before_they_are_sent(wrong: dict[str, Any]) -> None:
    with Client(URL) as client, pytest.raises(InvalidRequestError):
        client.infer({}, **{"model": "m", **wrong})


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"inputs": [0.5]}, "inputs"),
        ({"outputs": "output"}, "outputs"),
        ({"version": 1}, "version"),
        ({"model": 7}, "model"),
    ],
)
def test_what_is_of_the_wrong_type_is_named(wrong: dict[str, Any], field: str) -> None:
    with Client(URL) as client, pytest.raises(InvalidRequestError, match=f"^{field}: ") as refused:
        client.infer(**{"inputs": {}, "model": "m", **wrong})
    assert refused.value.field == field
    assert refused.value.allowed


def test_a_version_that_is_a_number_is_named_in_every_call() -> None:
    wrong: Any = 2
    with Client(URL) as client:
        calls = client._calls
        asked: list[Callable[[], Any]] = [
            lambda: calls.describe("m", wrong),
            lambda: calls.ask_ready("m", wrong),
            lambda: calls.register("m", wrong, "u", weight=1, owner_email="o@example.com", request_id=None),
            lambda: calls.retire("m", wrong),
        ]
        for ask in asked:
            with pytest.raises(InvalidRequestError, match="version: 2 is no text"):
                ask()


def test_both_clients_have_the_same_surface() -> None:
    def surface(kind: type) -> dict[str, Any]:
        found = {}
        for name, member in inspect.getmembers(kind):
            if name == "__init__" or not name.startswith("_"):
                callable_ = callable(member)
                found[name] = list(inspect.signature(member).parameters) if callable_ else None
        return found

    assert surface(Client) == surface(AsyncClient)


def test_headers_and_traces_go_with_every_question() -> None:
    with Client(URL, headers={"Authorization": "Bearer t"}) as client:
        calls = client._calls
        for question in (calls.list_models(), calls.describe("m", None), calls.ask_ready(None, None)):
            assert ("authorization", "Bearer t") in question.http_request(1).headers
            assert ("authorization", "Bearer t") in question.grpc_request(1).metadata
        assert calls._traced(GIVEN) == (("authorization", "Bearer t"), ("traceparent", GIVEN))


def test_a_client_that_never_asked_needs_no_loop() -> None:
    client = AsyncClient("h2://127.0.0.1:1")
    assert client.batching is None
    client.renegotiate(BatchingOffer(1, 1))
    asyncio.run(client.close())
    with pytest.raises(ConnectionError, match="the client is closed"):
        asyncio.run(client.infer({}, model="m"))
