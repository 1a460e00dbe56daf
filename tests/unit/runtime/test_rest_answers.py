"""Whatever goes wrong inside, a request that was taken in is answered."""

import json
import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest

from mcp2026.runtime.health import Health
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics, block_sizes
from mcp2026.runtime.metrics.shared_blocks import create_shared_memory
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.protocol.exchange import RequestHead, Response
from mcp2026.runtime.protocol.rest import RestApi


@pytest.fixture
def metrics() -> Iterator[RuntimeMetrics]:
    descriptor = create_shared_memory(block_sizes(1))
    made = RuntimeMetrics(descriptor, 1, 1)
    made.claim("", (), 0)
    yield made
    os.close(descriptor)


def test_a_fault_of_our_own_is_an_answer_a_line_of_the_log_and_a_count(
    metrics: RuntimeMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    missing: Any = None  # so that looking for a model fails
    api = RestApi(Health(), metrics, missing, missing, 10**9)
    responses: list[Response] = []
    with caplog.at_level(logging.ERROR):
        assert api.begin(RequestHead("POST", "/v1/infer", {}), b'{"model": "m"}', responses.append) is None
    (response,) = responses
    assert response.status == 500
    assert json.loads(response.body)["error"]["code"] == "internal"
    assert "Traceback" in caplog.text
    assert 'reason="internal"' in metrics.exposition().decode()


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"br"])
def test_a_compressed_body_is_refused_before_it_is_taken_for_json(
    metrics: RuntimeMetrics, encoding: bytes
) -> None:
    service: Any = None  # is not asked
    api = RestApi(Health(), metrics, ModelStore(), service, 10**9)
    refusal = api.admit(RequestHead("POST", "/v1/infer", {b"content-encoding": encoding}))
    assert refusal is not None
    assert refusal.status == 400
    assert json.loads(refusal.body)["error"]["field"] == "content-encoding"
    assert api.admit(RequestHead("POST", "/v1/infer", {b"content-encoding": b"identity"})) is None
