"""Batching as the real server and the client agree on it, over every transport (SPEC R2.3)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mcp2026.client import BatchingOffer, NegotiatedBatching
from mcp2026.client.exchange import HttpResponse
from mcp2026.client.operations.inference import Inference, InferenceResult
from tests.contract.client.both_clients import Awaited, Connect
from tests.contract.client.conftest import Echoes
from tests.contract.runtime.open_inference_server import echo_model, serve

ROW = np.float32([[1, 2, 3]])
OFFER = BatchingOffer(20, 2)


class Recorded(Inference):
    """A question that keeps the response to it."""

    response: HttpResponse

    def http_answer(self, response: HttpResponse) -> InferenceResult:
        self.response = response
        return super().http_answer(response)


def ask(client: Any, **named: Any) -> InferenceResult:
    result: InferenceResult = client.infer({"x": ROW}, model="echo_fp32", **named)
    return result


def test_what_is_negotiated_is_told_with_each_answer(url: str, protocol: str, connect: Connect) -> None:
    client = connect(url, batching=OFFER)
    assert client.batching is None
    result = ask(client)
    assert result.batching == NegotiatedBatching(20, 3)  # the server's size is 3, its delay 50 ms
    assert client.batching == (None if protocol == "http" else result.batching)
    assert ask(client, batchable=False).batching is None


def test_a_client_may_renegotiate(url: str, protocol: str, connect: Connect) -> None:
    client = connect(url, batching=OFFER)
    ask(client)
    client.renegotiate(BatchingOffer(10, 5))
    result = ask(client)
    assert result.batching == NegotiatedBatching(10, 5)
    assert client.batching == (None if protocol == "http" else result.batching)
    with pytest.raises(ValueError, match="max_delay_ms"):
        client.renegotiate(BatchingOffer(70_000))
    assert ask(client).batching == result.batching


def test_http2_negotiates_by_itself_and_the_others_do_not(url: str, protocol: str, connect: Connect) -> None:
    expected = NegotiatedBatching(50, 3) if protocol == "h2" else None
    assert ask(connect(url)).batching == expected


def test_a_client_that_does_not_want_to_is_left_alone(url: str, connect: Connect) -> None:
    client = connect(url, batching=False)
    assert ask(client).batching is None
    assert client.batching is None


@pytest.mark.parametrize("scheme", ["http", "h2"])
def test_the_result_comes_early_and_again_in_the_answer(
    scheme: str, echoes: Echoes, connect: Connect
) -> None:
    client = connect(echoes.url(scheme), batching=OFFER)
    question = Recorded({"x": ROW}, model="echo_fp32")
    if isinstance(client, Awaited):
        client.run(lambda one: one._ask(question, None))
    else:
        client._ask(question, None)
    assert question.response.hinted_batching == "active; max-delay-ms=20; min-size=3"
    assert question.response.headers["mcp-batching"] == "active; max-delay-ms=20; min-size=3"


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Echoes]:
    folder = tmp_path_factory.mktemp("silent")
    echo_model(folder, "echo_fp32", "FP32", None, 3)
    server = serve(folder, ["echo_fp32"], "--no-negotiation")
    yield Echoes(server, Path(folder))
    server.close()


def test_a_server_that_does_not_negotiate_answers_each_request_alone(
    silent: Echoes, protocol: str, connect: Connect
) -> None:
    client = connect(silent.url(protocol), batching=OFFER)
    assert [ask(client).batching for _ in range(3)] == [None] * 3
    assert client.batching is None
