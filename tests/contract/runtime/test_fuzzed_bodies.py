"""Ten thousand requests that are nearly right over each protocol, while another caller is served beside.

Every one is answered: 200 where it happens to be valid, else a status that blames the caller, with words. The
process lives, its memory does not grow, and the other caller's answers stay right.

`FUZZED_BODIES` is how many are sent over each protocol, `FUZZ_SEED` which; the defaults are what CI runs.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import pytest

from mcp2026.runtime.protocol.open_inference import open_inference_pb2 as messages
from tests.contract.runtime.fuzzed_bodies import MODELS, Fuzzer, bodies
from tests.contract.runtime.many_requests import (
    GRPC_HEADERS,
    HEADERS,
    PREFACE,
    SETTINGS,
    Answer,
    Http1Client,
    Http2Client,
    frame,
    frames_in,
    grpc_messages,
)
from tests.contract.runtime.open_inference_server import echo_model, serve, sums_model
from tests.contract.runtime.server_process import PATIENCE, Server, read_all

COUNT = int(os.environ.get("FUZZED_BODIES", "10000"))
SEED = int(os.environ.get("FUZZ_SEED", "2026"))
GROWTH_MIB = 24.0
"""What a server may grow by after the first tenth: memories of heads and questions, which are bounded."""
_BLAMES_THE_CALLER = {400, 404, 408, 411, 413, 415, 431, 501, 503, 504, 505}
"""503 and 504 where a caller asks for an answer sooner than there can be one."""
_GRPC_BLAMES_THE_CALLER = {b"3", b"4", b"5", b"6", b"8", b"12", b"14"}
_INTERNAL = b"13"
_MODEL_INFER = b"/inference.GRPCInferenceService/ModelInfer"
_STREAM_INFER = b"/inference.GRPCInferenceService/ModelStreamInfer"


class Neighbour:
    """A caller who asks for sums all the time and checks each."""

    def __init__(self, port: int) -> None:
        self.answers = 0
        self.problem: BaseException | None = None
        self._client = Http1Client(port)
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Neighbour":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._leave.set()
        self._thread.join(PATIENCE)
        self._client.close()

    def _run(self) -> None:
        draw = np.random.default_rng(1)
        try:
            while not self._leave.wait(0.002):
                self._ask(draw.standard_normal((2, 1, 4), np.float32))
        except BaseException as error:
            self.problem = error

    def _ask(self, pair: np.ndarray) -> None:
        tensors = [
            {"name": name, "datatype": "FP32", "shape": [1, 4], "parameters": {"binary_data_size": 16}}
            for name in ("a", "b")
        ]
        document = msgspec.json.encode({"inputs": tensors, "outputs": [{"name": "sum"}]})
        length = (b"inference-header-content-length", b"%d" % len(document))
        (answer,) = self._client.post([(b"/v2/models/sums/infer", (length,), document + pair.tobytes())])
        assert answer.status == 200, answer
        (output,) = msgspec.json.decode(answer.body)["outputs"]
        np.testing.assert_array_equal(np.array(output["data"], np.float32), pair[0, 0] + pair[1, 0])
        self.answers += 1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("repository")
    sums_model(folder, "sums")
    for name, kind in MODELS.items():
        if name != "sums":
            echo_model(folder, name, kind, None, None)
    running = serve(folder, list(MODELS))
    yield running
    running.close()


@pytest.fixture
def unharmed(server: Server) -> Iterator[Callable[[], None]]:
    """Give what is called after the first tenth; afterwards check that the server is as it was by then."""
    workers = server.workers()
    lines = len(server.log)
    resident: list[float] = []
    with Neighbour(server.port) as neighbour:
        yield lambda: resident.append(server.resident_mib())
    assert neighbour.problem is None
    assert neighbour.answers > 0
    assert server.workers() == workers
    assert server.resident_mib() - resident[0] < GROWTH_MIB
    assert [line for line in server.log[lines:] if not _tells_of_a_refusal(line)] == []
    assert server.request("GET", "/readyz").status == 200


def in_groups(items: Iterator[Any], size: int, at_a_tenth: Callable[[], None]) -> Iterator[list[Any]]:
    """Return `items` in groups; tell when the first tenth of all is done."""
    done, told = 0, False
    while group := list(islice(items, size)):
        yield group
        done += len(group)
        if not told and done >= COUNT // 10:
            told = True
            at_a_tenth()


def check(request: object, answer: Answer) -> None:
    if answer.status == 200:
        return
    assert answer.status in _BLAMES_THE_CALLER, (request, answer)
    error = msgspec.json.decode(answer.body)["error"]
    if isinstance(error, dict):
        assert error["message"]
        assert answer.status != 400 or error["message"].startswith(error["field"]), (request, answer)
        assert answer.status != 400 or error["allowed"], (request, answer)
        message = error["message"]
    else:
        message = error
        assert answer.status != 400 or "(allowed: " in error, (request, answer)
    if answer.status in (503, 504):
        assert "time" in message, (request, answer)


@pytest.mark.parametrize("kind", [b"own", b"json", b"binary"])
def test_requests_over_http1(server: Server, unharmed: Callable[[], None], kind: bytes) -> None:
    client = Http1Client(server.port)
    for group in in_groups(bodies(Fuzzer(SEED), kind, COUNT), 16, unharmed):
        for request, answer in zip(group, client.post(group), strict=True):
            check(request, answer)
    client.close()


@pytest.mark.parametrize("kind", [b"own", b"json", b"binary"])
def test_requests_over_http2(server: Server, unharmed: Callable[[], None], kind: bytes) -> None:
    client = Http2Client(server.port)
    for group in in_groups(bodies(Fuzzer(SEED + 1), kind, COUNT), 64, unharmed):
        for request, answer in zip(group, client.post(group), strict=True):
            check(request, answer)
    client.close()


def test_unary_calls_of_grpc(server: Server, unharmed: Callable[[], None]) -> None:
    fuzzer = Fuzzer(SEED + 2)
    client = Http2Client(server.grpc_port)
    calls = (fuzzer.grpc_body() for _ in range(COUNT))
    for group in in_groups(calls, 64, unharmed):
        answers = client.post([(_MODEL_INFER, GRPC_HEADERS, body) for body, _ in group])
        for (body, well_framed), answer in zip(group, answers, strict=True):
            check_call(body, answer, well_framed=well_framed)
    client.close()


def check_call(body: bytes, answer: Answer, *, well_framed: bool) -> None:
    assert answer.status == 200
    status = answer.headers[b"grpc-status"]
    if status == b"0":
        (message,) = grpc_messages(answer.body)
        messages.ModelInferResponse.FromString(message)
        return
    # INTERNAL is gRPC's own word for a message that is not framed as it should be.
    assert status in _GRPC_BLAMES_THE_CALLER or (status == _INTERNAL and not well_framed), (body, answer)
    assert status != b"3" or b"(allowed: " in answer.headers[b"grpc-message"], (body, answer)


def test_messages_of_a_grpc_stream(server: Server, unharmed: Callable[[], None]) -> None:
    fuzzer = Fuzzer(SEED + 3)
    client = Http2Client(server.grpc_port)
    for group in in_groups((fuzzer.grpc_message() for _ in range(COUNT)), 500, unharmed):
        body = b"".join(b"\0" + len(message).to_bytes(4, "big") + message for message in group)
        (answer,) = client.post([(_STREAM_INFER, GRPC_HEADERS, body)])
        assert answer.headers[b"grpc-status"] == b"0"
        answers = [messages.ModelStreamInferResponse.FromString(one) for one in grpc_messages(answer.body)]
        assert len(answers) == len(group)
        for request, one in zip(group, answers, strict=True):
            assert len(one.error_message) > 5 or one.infer_response.outputs or not one.error_message, request
    client.close()


def test_frames_of_http2(server: Server, unharmed: Callable[[], None]) -> None:
    fuzzer = Fuzzer(SEED + 4)
    for port in (server.port, server.grpc_port):
        for _ in range(COUNT // 2 // 8):
            frames = b"".join(fuzzer.frame(2 * index + 1) for index in range(8))
            received = talk(port, PREFACE + frame(SETTINGS, 0, 0) + frames)
            found, rest = frames_in(received)
            assert rest == b"", (frames, received)
            assert found[0][0] == SETTINGS
            for kind, _flags, _stream_id, payload in found:
                # 0x8e is :status 500 of the static table.
                assert kind != HEADERS or payload[:1] != b"\x8e", (frames, received)
        unharmed()


def test_bytes_that_are_no_request(server: Server, unharmed: Callable[[], None]) -> None:
    fuzzer = Fuzzer(SEED + 5)
    for port in (server.port, server.grpc_port):
        for _ in range(COUNT // 2 // 4):
            content = b"".join(fuzzer.raw() for _ in range(4))
            received = talk(port, content)
            statuses = [
                line.split(b" ")[1] for line in received.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")
            ]
            assert all(status == b"501" or status[:1] in b"124" for status in statuses), (content, received)
            if not statuses and received:
                assert frames_in(received)[1] == b"", (content, received)
        unharmed()


def talk(port: int, content: bytes) -> bytes:
    """Send `content`, and nothing more, on a new connection, and return all that comes back."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        with suppress(ConnectionError):
            client.sendall(content)
            client.shutdown(socket.SHUT_WR)
        return read_all(client)


def _tells_of_a_refusal(line: dict[str, Any]) -> bool:
    """Refused requests are told of, at a bounded rate; none may be the server's fault."""
    if line["logger"] != "mcp2026.requests":
        return False
    in_vain = "deadline_exceeded" in line["message"]  # a body may ask for an answer within a nanosecond
    return line["level"] == "info" or in_vain or "were left out" in line["message"]
