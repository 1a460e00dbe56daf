"""The unmodified Triton client, over HTTP and over gRPC: what both of them can do."""

import queue
import shutil
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException, shared_memory, triton_to_np_dtype

from tests.contract.runtime.open_inference_server import (
    ONNX_TYPES,
    address,
    echo_model,
    serve,
    sums_model,
)
from tests.contract.runtime.server_process import PATIENCE, Server

SAMPLES: dict[str, Any] = {
    "BOOL": [[True, False], [False, False]],
    "FP16": [[0.1, -65504], [np.inf, 0]],
    "BF16": [[0.1, -3e38], [np.inf, 0]],
    "FP32": [[0.1, -3e38], [np.inf, np.nan]],
    "FP64": [[0.1, -1e308], [5e-324, np.nan]],
    "BYTES": [[b"", b"one"], [b"\x00", "zwölf".encode()]],
}


def sample(datatype: str) -> Any:
    """Return values [2, 2] of a datatype, its limits among them."""
    if datatype in SAMPLES:
        dtype = ml_dtypes.bfloat16 if datatype == "BF16" else triton_to_np_dtype(datatype)
        return np.array(SAMPLES[datatype], dtype)
    limits = np.iinfo(triton_to_np_dtype(datatype))
    return np.array([[limits.min, limits.max], [0, 1]], limits.dtype)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    names = ["sums", "wide"]
    sums_model(folder, "sums")
    echo_model(folder, "wide", "FP32", None, 3_000)
    for datatype in ONNX_TYPES:
        for kind, shape in (("batch", (None, 2)), ("whole", (2, 2))):
            names.append(f"{kind}-{datatype}")
            echo_model(folder, names[-1], datatype, *shape)
    server = serve(folder, names)
    yield server
    server.close()


@pytest.fixture(params=["http", "grpc"])
def protocol(request: pytest.FixtureRequest) -> ModuleType:
    return getattr(tritonclient, request.param)  # type: ignore[no-any-return]


@pytest.fixture
def client(protocol: ModuleType, server: Server) -> Iterator[Any]:
    client = protocol.InferenceServerClient(address_of(server, protocol))
    yield client
    client.close()


def address_of(server: Server, protocol: ModuleType) -> str:
    return address(server, protocol.__name__.rpartition(".")[2])


def put(protocol: Any, name: str, array: Any, datatype: str = "FP32") -> Any:
    tensor = protocol.InferInput(name, list(array.shape), datatype)
    return tensor.set_data_from_numpy(array)


def sums(protocol: Any, rows: int = 1) -> tuple[list[Any], Any, Any]:
    a = np.arange(4 * rows, dtype=np.float32).reshape(rows, 4)
    b = np.full((rows, 4), 0.5, np.float32)
    return [put(protocol, "b", b), put(protocol, "a", a)], a + b, a - b


def same(left: Any, right: Any) -> bool:
    left, right = np.asarray(left), np.asarray(right)
    if left.dtype == object:
        return left.tolist() == right.tolist()  # type: ignore[no-any-return]
    return left.shape == right.shape and left.tobytes() == right.tobytes()


@pytest.mark.parametrize("kind", ["batch", "whole"])
@pytest.mark.parametrize("datatype", ONNX_TYPES)
def test_every_datatype_comes_back_as_it_went(client: Any, protocol: Any, datatype: str, kind: str) -> None:
    array = sample(datatype)
    result = client.infer(f"{kind}-{datatype}", [put(protocol, "x", array, datatype)])
    assert same(result.as_numpy("y"), array)


def test_only_the_outputs_that_are_asked_for_are_answered(client: Any, protocol: Any) -> None:
    inputs, total, difference = sums(protocol, rows=2)
    both = client.infer("sums", inputs, request_id="r-1")
    assert same(both.as_numpy("sum"), total)
    assert same(both.as_numpy("difference"), difference)
    one = client.infer("sums", inputs, outputs=[protocol.InferRequestedOutput("difference")])
    assert same(one.as_numpy("difference"), difference)
    assert one.as_numpy("sum") is None


def test_the_answer_names_model_version_and_request(client: Any, protocol: Any) -> None:
    result = client.infer("sums", sums(protocol)[0], request_id="r-1", model_version="1").get_response()
    fields = result if isinstance(result, dict) else {f.name: value for f, value in result.ListFields()}
    assert (fields["model_name"], fields["model_version"], fields["id"]) == ("sums", "1", "r-1")


def test_priority_timeout_and_parameters_of_the_callers_own_are_taken(client: Any, protocol: Any) -> None:
    inputs, total, _ = sums(protocol)
    result = client.infer(
        "sums", inputs, priority=1, timeout=20_000_000, parameters={"mine": "yes", "number": 3, "flag": True}
    )
    assert same(result.as_numpy("sum"), total)


def test_classes_are_the_highest_values(client: Any, protocol: Any) -> None:
    array = np.array([[0.5, 2.0], [7.0, -1.0]], np.float32)
    for kind, expected in (
        ("batch", [[b"2.000000:1"], [b"7.000000:0"]]),
        ("whole", [b"7.000000:2"]),
    ):
        result = client.infer(
            f"{kind}-FP32",
            [put(protocol, "x", array)],
            outputs=[protocol.InferRequestedOutput("y", class_count=1)],
        )
        assert result.as_numpy("y").tolist() == expected


def test_shared_memory_in_and_out(client: Any, protocol: Any) -> None:
    name = f"test-{uuid.uuid4().hex}"
    region = shared_memory.create_shared_memory_region(name, name, 256)
    try:
        a = np.arange(8, dtype=np.float32).reshape(2, 4)
        b = np.ones((2, 4), np.float32)
        shared_memory.set_shared_memory_region(region, [a, b], offset=16)
        client.register_system_shared_memory(name, name, 240, offset=16)
        inputs = [protocol.InferInput(tensor, [2, 4], "FP32") for tensor in ("a", "b")]
        inputs[0].set_shared_memory(name, 32)
        inputs[1].set_shared_memory(name, 32, offset=32)
        outputs = [protocol.InferRequestedOutput("difference"), protocol.InferRequestedOutput("sum")]
        outputs[1].set_shared_memory(name, 32, offset=64)
        result = client.infer("sums", inputs, outputs=outputs)
        written = shared_memory.get_contents_as_numpy(region, np.float32, [2, 4], offset=80)
        assert same(written, a + b)
        assert same(result.as_numpy("difference"), a - b)
        outputs[1].set_shared_memory(name, 31, offset=64)
        with pytest.raises(InferenceServerException, match="at least 32 bytes"):
            client.infer("sums", inputs, outputs=outputs)
        inputs[1].set_shared_memory(name, 32, offset=230)
        with pytest.raises(InferenceServerException, match="past region"):
            client.infer("sums", inputs)
        with pytest.raises(InferenceServerException, match="registered already"):
            client.register_system_shared_memory(name, name, 240, offset=16)
        status = client.get_system_shared_memory_status(name)
        listed = status[0] if isinstance(status, list) else status.regions[name]
        sizes = (
            (listed["offset"], listed["byte_size"])
            if isinstance(listed, dict)
            else (listed.offset, listed.byte_size)
        )
        assert sizes == (16, 240)
    finally:
        client.unregister_system_shared_memory(name)
        del written
        shared_memory.destroy_shared_memory_region(region)
    with pytest.raises(InferenceServerException, match="no shared memory region"):
        client.infer("sums", inputs)


@pytest.mark.parametrize("datatype", ["BYTES", "FP16", "BF16"])
def test_every_datatype_goes_through_shared_memory(client: Any, protocol: Any, datatype: str) -> None:
    name = f"test-{uuid.uuid4().hex}"
    region = shared_memory.create_shared_memory_region(name, name, 1_024)
    try:
        array = np.array([[b"p", b"one"]], object) if datatype == "BYTES" else sample(datatype)
        content = tritonclient.utils.serialize_byte_tensor(array) if datatype == "BYTES" else array
        size = len(content.item()) if datatype == "BYTES" else array.nbytes
        shared_memory.set_shared_memory_region(region, [content])
        client.register_system_shared_memory(name, name, 1_024)
        tensor = protocol.InferInput("x", list(array.shape), datatype)
        tensor.set_shared_memory(name, size)
        output = protocol.InferRequestedOutput("y")
        output.set_shared_memory(name, 512, offset=512)
        client.infer(f"batch-{datatype}", [tensor], outputs=[output])
        written = bytes(region._mpsm_handle.buf[512 : 512 + size])
        assert written == bytes(region._mpsm_handle.buf[:size])
    finally:
        client.unregister_system_shared_memory()
        shared_memory.destroy_shared_memory_region(region)


def test_shared_memory_of_servers_and_gpus_is_refused(client: Any) -> None:
    for key in ("mcp2026-metrics", "triton_python_backend_shm_region_0", "../tmp/x", "none-such"):
        with pytest.raises(InferenceServerException):
            client.register_system_shared_memory("r", key, 16)
    client.unregister_system_shared_memory("never-registered")
    client.unregister_system_shared_memory()
    client.unregister_cuda_shared_memory()
    assert not getattr(client.get_cuda_shared_memory_status(), "regions", None)
    with pytest.raises(InferenceServerException, match="CUDA shared memory is not served"):
        client.register_cuda_shared_memory("r", b"aGFuZGxl", 0, 16)


def test_health_and_readiness(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("sums")
    assert client.is_model_ready("sums", "1")
    assert not client.is_model_ready("sums", "2")
    assert not client.is_model_ready("unknown")


def test_metadata_and_configuration_agree(client: Any, protocol: Any) -> None:
    def ask(method: str, *arguments: Any) -> Any:
        call = getattr(client, method)
        return call(*arguments) if protocol is tritonclient.http else call(*arguments, as_json=True)

    metadata = ask("get_model_metadata", "sums")
    config = ask("get_model_config", "sums", "1")
    config = config.get("config", config)
    assert [tensor["name"] for tensor in metadata["inputs"]] == [tensor["name"] for tensor in config["input"]]
    assert metadata["platform"] == config["platform"] == "onnxruntime_onnx"
    assert config["max_batch_size"] == 8
    assert "dynamic_batching" in config
    for tensor, described in zip(metadata["outputs"], config["output"], strict=True):
        assert [int(dim) for dim in tensor["shape"]] == [-1, 4]
        assert [int(dim) for dim in described["dims"]] == [4]
        assert f"TYPE_{tensor['datatype']}" == described["data_type"]
    whole = ask("get_model_config", "whole-BYTES")
    whole = whole.get("config", whole)
    assert not whole.get("max_batch_size")
    assert whole["input"][0]["data_type"] == "TYPE_STRING"
    assert "statistics" in ask("get_server_metadata")["extensions"]


def test_statistics_count_what_was_inferred(client: Any, protocol: Any) -> None:
    def count() -> tuple[int, int]:
        answer = client.get_inference_statistics("sums")
        if isinstance(answer, dict):
            (statistics,) = answer["model_stats"]
            return statistics["inference_count"], statistics["inference_stats"]["success"]["count"]
        (statistics,) = answer.model_stats
        return statistics.inference_count, statistics.inference_stats.success.count

    rows, requests = count()
    client.infer("sums", sums(protocol, rows=3)[0])
    assert count() == (rows + 3, requests + 1)
    every = client.get_inference_statistics()
    assert len(every["model_stats"] if isinstance(every, dict) else every.model_stats) > 2


def test_models_are_listed_unloaded_and_loaded(client: Any, protocol: Any) -> None:
    def states() -> dict[str, str]:
        index = client.get_model_repository_index()
        if isinstance(index, list):
            return {entry["name"]: entry["state"] for entry in index}
        return {entry.name: entry.state for entry in index.models}

    assert states()["sums"] == "READY"
    client.unload_model("sums")
    assert states()["sums"] == "UNAVAILABLE"
    assert not client.is_model_ready("sums")
    with pytest.raises(InferenceServerException, match="unavailable"):
        client.infer("sums", sums(protocol)[0])
    client.load_model("sums")
    assert states()["sums"] == "READY"
    client.infer("sums", sums(protocol)[0])
    with pytest.raises(InferenceServerException, match="no model 'nothing'"):
        client.load_model("nothing")
    with pytest.raises(InferenceServerException, match="configuration or files"):
        client.load_model("sums", config='{"max_batch_size": 2}')


def test_settings_are_told_and_not_changed(client: Any) -> None:
    trace, log = client.get_trace_settings(), client.get_log_settings()
    assert "trace_level" in (trace if isinstance(trace, dict) else trace.settings)
    assert "log_info" in (log if isinstance(log, dict) else log.settings)
    with pytest.raises(InferenceServerException, match="tracing"):
        client.update_trace_settings(settings={"trace_rate": "5"})
    with pytest.raises(InferenceServerException, match="--log-level"):
        client.update_log_settings({"log_verbose_level": 1})


def test_mistakes_are_told_with_triton_s_statuses(client: Any, protocol: Any) -> None:
    inputs, _, _ = sums(protocol)
    http = protocol is tritonclient.http

    def status(*arguments: Any, **more: Any) -> str:
        with pytest.raises(InferenceServerException) as mistake:
            client.infer(*arguments, **more)
        assert mistake.value.message()
        return str(mistake.value.status()).removeprefix("StatusCode.")

    assert status("unknown", inputs) == ("404" if http else "NOT_FOUND")
    assert status("sums", inputs, model_version="9") == ("404" if http else "NOT_FOUND")
    wrong = "400" if http else "INVALID_ARGUMENT"
    assert status("sums", inputs[:1]) == wrong
    assert status("sums", inputs, sequence_id=5) == wrong
    assert status("sums", [put(protocol, "a", np.zeros((1, 3), np.float32)), inputs[0]]) == wrong
    assert status("sums", [put(protocol, "a", np.zeros((1, 4), np.int64), "INT64"), inputs[0]]) == wrong
    assert status("sums", inputs, outputs=[protocol.InferRequestedOutput("none")]) == wrong


def test_a_request_with_more_rows_than_a_run_is_answered_whole(client: Any, protocol: Any) -> None:
    inputs, total, difference = sums(protocol, rows=21)
    result = client.infer("sums", inputs)
    assert same(result.as_numpy("sum"), total)
    assert same(result.as_numpy("difference"), difference)


def test_each_of_a_batch_gets_only_the_outputs_that_it_asked_for(server: Server, protocol: Any) -> None:
    inputs, total, difference = sums(protocol)
    expected = {"sum": total, "difference": difference}
    names = ["sum", "difference"] * 10

    def ask(name: str) -> Any:
        with protocol.InferenceServerClient(address_of(server, protocol)) as client:
            return client.infer("sums", inputs, outputs=[protocol.InferRequestedOutput(name)])

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(ask, names))
    for name, result in zip(names, results, strict=True):
        assert same(result.as_numpy(name), expected[name])
        assert result.as_numpy("sum" if name == "difference" else "difference") is None


def test_a_request_s_own_timeout_counts_also_where_the_model_has_none(
    tmp_path: Path, model: Callable[[str], Path], protocol: Any
) -> None:
    folder = tmp_path / "slow/1"
    folder.mkdir(parents=True)
    shutil.copy(model("slow"), folder / "model.onnx")
    server = serve(tmp_path, ["slow"])
    try:
        with protocol.InferenceServerClient(address_of(server, protocol)) as client:
            inputs = [put(protocol, "input", np.ones((1, 16), np.float32))]
            assert client.infer("slow", inputs, timeout=0).as_numpy("output").shape == (1, 16)
            with pytest.raises(InferenceServerException, match="the time allowed") as late:
                client.infer("slow", inputs, timeout=1)
            assert str(late.value.status()) in ("503", "StatusCode.UNAVAILABLE")
    finally:
        server.close()


def test_requests_sent_at_once_are_all_answered(server: Server, protocol: Any) -> None:
    inputs, total, _ = sums(protocol)
    if protocol is tritonclient.http:
        with protocol.InferenceServerClient(address_of(server, protocol), concurrency=4) as client:
            pending = [client.async_infer("sums", inputs) for _ in range(20)]
            results = [one.get_result() for one in pending]
    else:
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with protocol.InferenceServerClient(address_of(server, protocol)) as client:
            for _ in range(20):
                client.async_infer("sums", inputs, lambda result, error: answers.put(error or result))
            results = [answers.get(timeout=PATIENCE) for _ in range(20)]
    assert all(same(result.as_numpy("sum"), total) for result in results)


async def test_the_asyncio_clients_work_too(server: Server, protocol: Any) -> None:
    inputs, total, _ = sums(protocol)
    async with protocol.aio.InferenceServerClient(address_of(server, protocol)) as client:
        assert await client.is_server_ready()
        result = await client.infer("sums", inputs)
        assert same(result.as_numpy("sum"), total)
