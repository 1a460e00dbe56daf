"""Whatever goes wrong inside, a request that was taken in is answered."""

import json
import logging
import os
from collections.abc import Iterator

import pytest

from mcp2026.api.serving import Batching, single_version
from mcp2026.runtime.health import Health
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics, table_size
from mcp2026.runtime.metrics.shared_table import create_shared_memory
from mcp2026.runtime.protocol.exchange import RequestHead, Response
from mcp2026.runtime.protocol.rest import RestApi


@pytest.fixture
def metrics() -> Iterator[RuntimeMetrics]:
    config = single_version("m.onnx", Batching())
    rows, columns = table_size(config, 1)
    descriptor = create_shared_memory(rows, columns)
    yield RuntimeMetrics(config, descriptor, rows, 0)
    os.close(descriptor)


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/infer"), ("GET", "/v1/models"), ("HEAD", "/v1/models")]
)
def test_a_fault_of_our_own_is_an_answer_a_line_of_the_log_and_a_count(
    metrics: RuntimeMetrics, caplog: pytest.LogCaptureFixture, method: str, path: str
) -> None:
    api = RestApi(Health(), metrics, None, 10**9)  # type: ignore[arg-type]
    api.serve(object())  # type: ignore[arg-type]
    responses: list[Response] = []
    with caplog.at_level(logging.ERROR):
        assert api.begin(RequestHead(method, path, {}), b'{"model": "m"}', responses.append) is None
    (response,) = responses
    assert response.status == 500
    assert json.loads(response.body)["error"]["code"] == "internal"
    assert "Traceback" in caplog.text
    assert 'reason="internal"' in metrics.exposition().decode()
