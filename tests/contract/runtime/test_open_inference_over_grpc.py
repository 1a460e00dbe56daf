"""What gRPC alone has: streams of requests, typed contents, compressed messages."""

import queue
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.contract.runtime.open_inference_server import (
    address,
    echo_model,
    serve,
    sums_model,
)
from tests.contract.runtime.server_process import PATIENCE, Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    sums_model(folder, "sums")
    echo_model(folder, "echo", "FP32", None, 2)
    echo_model(folder, "wide", "FP32", None, 300_000)
    server = serve(folder, ["sums", "echo", "wide"])
    yield server
    server.close()


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with triton.InferenceServerClient(address(server, "grpc")) as client:
        yield client


def tensor(array: Any, name: str = "x") -> Any:
    return triton.InferInput(name, list(array.shape), "FP32").set_data_from_numpy(array)


def test_answers_of_a_stream_come_in_the_order_of_its_requests_errors_among_them(client: Any) -> None:
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.start_stream(lambda result, error: answers.put(error or result))
    for number in range(10):
        model = "unknown" if number == 5 else "echo"
        array = np.full((1 + number % 3, 2), number, np.float32)
        client.async_stream_infer(
            model, [tensor(array)], request_id=str(number), enable_empty_final_response=number % 2 == 0
        )
    received = [answers.get(timeout=PATIENCE) for _ in range(10)]
    client.stop_stream()
    for number, result in enumerate(received):
        if number == 5:
            assert "no model 'unknown'" in str(result)
            continue
        response = result.get_response()
        assert response.id == str(number)
        assert response.parameters["triton_final_response"].bool_param
        assert (result.as_numpy("y") == number).all()


def test_a_stream_can_be_left_in_the_middle(client: Any, server: Server) -> None:
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.start_stream(lambda result, error: answers.put(error or result))
    array = np.zeros((1, 300_000), np.float32)
    for _ in range(20):
        client.async_stream_infer("wide", [tensor(array)])
    client.stop_stream(cancel_requests=True)
    assert client.infer("echo", [tensor(np.ones((1, 2), np.float32))]).as_numpy("y").tolist() == [[1, 1]]


def test_a_large_tensor_comes_back_whole(client: Any) -> None:
    array = np.random.default_rng(0).standard_normal((3, 300_000)).astype(np.float32)
    result = client.infer("wide", [tensor(array)])
    assert (result.as_numpy("y") == array).all()


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_messages_may_be_compressed(client: Any, algorithm: str) -> None:
    array = np.zeros((2, 300_000), np.float32)
    result = client.infer("wide", [tensor(array)], compression_algorithm=algorithm)
    assert result.as_numpy("y").shape == (2, 300_000)


def test_typed_contents_are_answered_raw(server: Server) -> None:
    with grpc.insecure_channel(address(server, "grpc")) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        contents = service_pb2.InferTensorContents(fp32_contents=[1, 2])
        one = service_pb2.ModelInferRequest.InferInputTensor(
            name="x", datatype="FP32", shape=[1, 2], contents=contents
        )
        answer = stub.ModelInfer(service_pb2.ModelInferRequest(model_name="echo", inputs=[one]))
        assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [1, 2]
        assert not answer.outputs[0].HasField("contents")


def test_a_shared_output_has_an_empty_entry_of_its_own(client: Any, server: Server) -> None:
    memory = SharedMemory(create=True, size=64)
    try:
        client.register_system_shared_memory("r", memory.name, 64)
        ones = np.ones((1, 4), np.float32)
        outputs = [triton.InferRequestedOutput("sum"), triton.InferRequestedOutput("difference")]
        outputs[0].set_shared_memory("r", 16)
        result = client.infer("sums", [tensor(ones, "a"), tensor(ones, "b")], outputs=outputs)
        response = result.get_response()
        assert [len(raw) for raw in response.raw_output_contents] == [0, 16]
        assert np.frombuffer(memory.buf[:16], np.float32).tolist() == [2, 2, 2, 2]
        assert response.outputs[0].parameters["shared_memory_byte_size"].int64_param == 16
    finally:
        client.unregister_system_shared_memory()
        memory.close()
        memory.unlink()


def test_a_message_that_is_none_is_refused(server: Server) -> None:
    with grpc.insecure_channel(address(server, "grpc")) as channel:
        for method in ("ModelInfer", "ModelConfig", "RepositoryModelLoad"):
            call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
            with pytest.raises(grpc.RpcError) as mistake:
                call(b"\xff\xff\xff", timeout=PATIENCE)
            assert mistake.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.RpcError) as mistake:
            channel.unary_unary("/inference.GRPCInferenceService/Nothing")(b"", timeout=PATIENCE)
        assert mistake.value.code() is grpc.StatusCode.UNIMPLEMENTED
