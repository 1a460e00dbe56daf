"""The answers are the model's: alone, in a batch, for every type, and for two versions."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.contract.runtime.server_process import PATIENCE, Server, serving_config


def test_resnet50_over_four_workers_answers_like_onnx_runtime(start, direct) -> None:
    server = start("resnet50", "--workers", "4")
    image = np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32)
    reply = server.infer(image)
    np.testing.assert_array_equal(reply.array(), direct("resnet50", input=image)[0])
    assert (reply.json["model"], reply.json["version_id"]) == ("resnet50", "1")
    assert len(server.workers()) == 4


@pytest.mark.parametrize("rows", [1, 2, 7, 32])
def test_one_request_of_any_number_of_rows_is_exact(shared, direct, rows: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32)
    np.testing.assert_array_equal(shared("mlp").infer(x).array(), direct("mlp", input=x)[0])


def test_many_callers_at_once_get_their_own_rows(shared, direct) -> None:
    server = shared("mlp")
    random = np.random.default_rng(7)
    inputs = [random.standard_normal((rows, 64)).astype(np.float32) for rows in random.integers(1, 6, 300)]
    with ThreadPoolExecutor(24) as pool:
        outputs = list(pool.map(lambda x: server.infer(x).array(), inputs))
    for x, y in zip(inputs, outputs, strict=True):
        np.testing.assert_allclose(y, direct("mlp", input=x)[0], rtol=2e-5, atol=2e-6)


def test_concurrent_requests_really_share_executions(shared, direct) -> None:
    server = shared("slow")
    random = np.random.default_rng(8)
    inputs = [random.standard_normal((1, 16)).astype(np.float32) for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        outputs = list(pool.map(lambda x: server.infer(x).array(), inputs))
    for x, y in zip(inputs, outputs, strict=True):
        np.testing.assert_allclose(y, direct("slow", input=x)[0], rtol=1e-3, atol=1e-4)
    executions = server.metric("mcp2026_batch_rows_count")
    assert server.metric("mcp2026_batch_rows_sum") == 16
    assert executions <= 8


def test_every_float32_comes_back_to_the_last_bit(shared) -> None:
    random = np.random.default_rng(3)
    bits = random.integers(0, 2**32, 4_000, dtype=np.uint32).view(np.float32)
    finite = bits[np.isfinite(bits)]
    edges = np.array([0.0, -0.0, 1e-45, np.finfo(np.float32).max, 0.1, 1 / 3], np.float32)
    x = np.concatenate([edges, finite])[:2_000].reshape(1, -1)
    y = shared("anysize").infer(x).array()
    np.testing.assert_array_equal(y, x + np.float32(1))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("integers", np.array([[2**53 + 1, -(2**62), 0, 7]], np.int64)),
        ("halves", np.array([[0.1, 1000.5, -2, 6e-8]], np.float16)),
        ("booleans", np.array([[True, False, False, True]])),
    ],
)
def test_other_types_are_exact(shared, direct, name: str, values: np.ndarray) -> None:
    reply = shared(name).infer(values)
    np.testing.assert_array_equal(reply.array(values.dtype), direct(name, input=values)[0])
    assert reply.json["dtype"] == values.dtype.name


def test_several_inputs_and_outputs_go_by_name(shared, direct) -> None:
    left, right = (np.random.default_rng(n).standard_normal((2, 4)).astype(np.float32) for n in range(2))
    tensors = {
        name: {"data": array.ravel().tolist(), "shape": [2, 4]}
        for name, array in (("left", left), ("right", right))
    }
    server = shared("pair")
    reply = server.request("POST", "/v1/infer", {"inputs": tensors, "id": "abc"})
    expected = dict(zip(("sum", "difference"), direct("pair", left=left, right=right), strict=True))
    assert reply.json["id"] == "abc"
    for name, array in expected.items():
        output = reply.json["outputs"][name]
        np.testing.assert_array_equal(np.array(output["data"], np.float32).reshape(output["shape"]), array)
    only = server.request("POST", "/v1/infer", {"inputs": tensors, "outputs": ["difference"]})
    assert list(only.json["outputs"]) == ["difference"]


def test_infinities_and_nan_come_back_as_words(shared) -> None:
    reply = shared("reciprocal").infer(np.array([[0.0, -0.0, 2.0, 4.0]], np.float32))
    assert reply.json["output"] == ["Infinity", "-Infinity", 0.5, 0.25]


def test_a_fixed_batch_dimension_runs_one_request_at_a_time(shared, direct) -> None:
    server = shared("fixed")
    inputs = [np.full((2, 8), n, np.float32) for n in range(12)]
    with ThreadPoolExecutor(12) as pool:
        outputs = list(pool.map(lambda x: server.infer(x).array(), inputs))
    for x, y in zip(inputs, outputs, strict=True):
        np.testing.assert_array_equal(y, -x)
    assert server.metric("mcp2026_batch_rows_count") == 12


def test_a_model_whose_rows_influence_each_other_is_never_batched(shared, direct) -> None:
    server = shared("mixing")
    random = np.random.default_rng(5)
    inputs = [random.standard_normal((2, 4)).astype(np.float32) for _ in range(40)]
    with ThreadPoolExecutor(20) as pool:
        outputs = list(pool.map(lambda x: server.infer(x).array(), inputs))
    for x, y in zip(inputs, outputs, strict=True):
        np.testing.assert_array_equal(y, direct("mixing", input=x)[0])
    assert server.request("GET", "/v1/models").json["models"][0]["versions"][0]["batched"] is False


def test_requests_of_several_lengths_at_once(shared) -> None:
    server = shared("anysize")
    inputs = [np.full((1, 1 + n % 5), n, np.float32) for n in range(100)]
    with ThreadPoolExecutor(16) as pool:
        outputs = list(pool.map(lambda x: server.infer(x).array(), inputs))
    for x, y in zip(inputs, outputs, strict=True):
        np.testing.assert_array_equal(y, x + 1)


def test_one_request_that_makes_the_model_fail_costs_its_batchmates_nothing(shared) -> None:
    server = shared("lookup")
    indices = [3, 10, 5, 7, 99, 1] * 10
    with ThreadPoolExecutor(20) as pool:
        replies = list(pool.map(lambda i: server.infer(np.array([[i]])), indices))
    for index, reply in zip(indices, replies, strict=True):
        if index < 10:
            assert reply.json["output"] == [2 * index, 2 * index + 1]
        else:
            assert (reply.status, reply.error["code"]) == (500, "execution_failed")


def test_versions_share_the_traffic_by_weight_and_can_be_named(model, tmp_path: Path) -> None:
    config = serving_config(
        tmp_path / "serving.json", [("v1", model("add"), 90), ("v2", model("add-hundred"), 10)]
    )
    server = Server("--serving-config", str(config), "--threads", "1")
    try:
        x = np.zeros((1, 16), np.float32)
        seen = Counter()
        for _ in range(100):
            reply = server.infer(x)
            assert reply.array()[0, 0] == {"v1": 1, "v2": 100}[reply.json["version_id"]]
            seen[reply.json["version_id"]] += 1
        assert seen == {"v1": 90, "v2": 10}
        assert server.infer(x, version_id="v2").array()[0, 0] == 100
        unknown = server.infer(x, version_id="v3")
        assert unknown.status == 404
        assert unknown.error == {
            "code": "not_found",
            "message": "model 'model' has no version 'v3'",
            "field": "version_id",
            "allowed": "v1, v2",
        }
        versions = server.request("GET", "/v1/models").json["models"][0]["versions"]
        assert [(v["version_id"], v["weight"]) for v in versions] == [("v1", 90), ("v2", 10)]
        assert server.metric("mcp2026_requests_total", version="v2", code="200") == 11
    finally:
        server.close()


def test_a_long_run_does_not_block_health_or_metrics(start) -> None:
    server = start("slow")
    x = np.zeros((32, 16), np.float32)  # a quarter of a second of one idle core
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.infer, x)
        server.wait_until(lambda: server.metric("mcp2026_pending_requests") == 1, "the request runs")
        assert not running.done()
        assert server.request("GET", "/readyz").status == 200
        assert running.result(PATIENCE).status == 200
