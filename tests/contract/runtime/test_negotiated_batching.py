"""Negotiated batching of a real server: how batches form, what real clients see, and what is told of it."""

import asyncio
import http.client
import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import grpc
import numpy as np
import pytest
import requests
import tritonclient.grpc
import tritonclient.http

from mcp2026.api.contract.rpc_status import decode_status
from mcp2026.runtime.protocol.http2 import frames
from tests.contract.runtime.many_requests import PREFACE, frame, literal
from tests.contract.runtime.server_process import PATIENCE, Server

BODY = json.dumps({"input": [0.1] * 64, "shape": [1, 64]}).encode()
LONG = "1; max-delay-ms=60000; min-size=4"
"""So long that only the rows can end the wait."""


@pytest.fixture(scope="module")
def server(model: Callable[[str], Any]) -> Any:
    running = Server("--model-path", str(model("mlp")), "--threads", "1", "--negotiate-delay-ms", "65535")
    yield running
    running.close()


def infer(server: Server, said: str | None = None) -> tuple[int, dict[str, str]]:
    headers = {} if said is None else {"x-mcp-batch-capable": said}
    reply = server.request("POST", "/v1/infer", BODY, headers)
    return reply.status, reply.headers


def batches(server: Server) -> dict[str, int]:
    return dict(server.request("GET", "/v1/batching").json["batches"])


def changed(server: Server, before: dict[str, int]) -> dict[str, int]:
    """Return the batches since then; their counts are there before the answers are."""
    now = batches(server)
    return {cause: count - before[cause] for cause, count in now.items() if count != before[cause]}


def test_a_batch_leaves_when_its_rows_suffice(server: Server) -> None:
    before = batches(server)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: infer(server, LONG), range(4)))
    assert changed(server, before) == {"size": 1}
    for status, headers in answers:
        assert (status, headers["mcp-batching"]) == (200, "active; max-delay-ms=60000; min-size=4")


def test_a_batch_leaves_when_the_delay_is_over(server: Server) -> None:
    before = batches(server)
    assert infer(server, "1; max-delay-ms=30; min-size=4")[0] == 200
    assert changed(server, before) == {"delay": 1}


def test_a_batch_leaves_in_time_for_a_deadline(server: Server) -> None:
    for _ in range(10):  # run times are known from now on
        infer(server)
    before = batches(server)
    body = {"input": [0.1] * 64, "shape": [1, 64], "timeout_ms": 1_000}
    reply = server.request("POST", "/v1/infer", body, {"x-mcp-batch-capable": LONG})
    assert reply.status == 200
    assert changed(server, before) == {"deadline": 1}


def test_a_request_that_agrees_to_nothing_takes_those_that_wait(server: Server) -> None:
    before = batches(server)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(infer, server, LONG)
        server.wait_until(lambda: server.metric("mcp2026_queue_rows") == 1, "one waits")
        assert "mcp-batching" not in infer(server)[1]
        assert waiting.result(PATIENCE)[0] == 200
    assert changed(server, before) == {"idle": 1}


def test_all_protocols_wait_for_each_other(server: Server, model: Callable[[str], Any]) -> None:
    """One row of /v1, two of /v2 and one of gRPC make a batch of four."""
    before = batches(server)
    rows = np.full((2, 64), 0.1, np.float32)

    def over_http() -> Any:
        with tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
            tensor = tritonclient.http.InferInput("input", [2, 64], "FP32")
            tensor.set_data_from_numpy(rows)
            return client.infer("mlp", [tensor], headers={"x-mcp-batch-capable": LONG}).as_numpy("output")

    def over_grpc() -> Any:
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            tensor = tritonclient.grpc.InferInput("input", [1, 64], "FP32")
            tensor.set_data_from_numpy(rows[:1])
            return client.infer("mlp", [tensor], headers={"x-mcp-batch-capable": LONG}).as_numpy("output")

    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(over_http), pool.submit(over_grpc)]
        server.wait_until(lambda: server.metric("mcp2026_queue_rows") == 3, "three rows wait")
        assert infer(server, LONG)[0] == 200
        outputs = [one.result(PATIENCE) for one in found]
    assert changed(server, before) == {"size": 1}
    np.testing.assert_allclose(outputs[0][:1], outputs[1], rtol=1e-5)


@pytest.mark.parametrize(
    ("said", "field", "rule"),
    [
        ("yes", "x-mcp-batch-capable", "pattern"),
        ("1; min-size=256", "x-mcp-batch-capable.min-size", "maximum"),
        ("1; max-delay-ms=-1", "x-mcp-batch-capable.max-delay-ms", "minimum"),
    ],
)
def test_an_offer_that_cannot_be_taken_is_refused_everywhere(
    server: Server, said: str, field: str, rule: str
) -> None:
    refused = server.metric("mcp2026_batching_offers_refused_total")
    headers = {"x-mcp-batch-capable": said}
    reply = server.request("POST", "/v1/infer", BODY, headers)
    assert (reply.status, reply.error["field"], reply.error["rule"]) == (400, field, rule)
    reply = server.request("POST", "/v2/models/mlp/infer", b"{}", headers)
    assert reply.status == 400
    assert field in reply.json["error"]
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        tensor = tritonclient.grpc.InferInput("input", [1, 64], "FP32")
        tensor.set_data_from_numpy(np.zeros((1, 64), np.float32))
        with pytest.raises(tritonclient.grpc.InferenceServerException, match=field) as caught:
            client.infer("mlp", [tensor], headers=headers)
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        native = channel.unary_unary("/mcp2026.v1.InferenceService/Infer")
        with pytest.raises(grpc.RpcError) as failed:
            native(b"", metadata=[("x-mcp-batch-capable", said)], timeout=PATIENCE)
    error = decode_status(dict(failed.value.trailing_metadata())["grpc-status-details-bin"])
    assert error is not None
    assert (error.code, error.field, error.rule) == ("invalid_argument", field, rule)
    assert server.metric("mcp2026_batching_offers_refused_total") == refused + 4


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is missing")
    return found


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
@pytest.mark.parametrize("said", [None, "1", "1; max-delay-ms=5; min-size=4; early-hints=1"])
def test_curl(server: Server, version: str, said: str | None) -> None:
    command = [program("curl"), "-sS", "--noproxy", "*", version, "--include", "--data-binary", "@-"]
    command += [] if said is None else ["-H", f"x-mcp-batch-capable: {said}"]
    if said == "1":
        command += ["-H", "x-mcp-batch-capable: 1; max-delay-ms=5"]  # the default offer waits for a minute
    told = subprocess.run(
        [*command, f"http://127.0.0.1:{server.port}/v1/infer"],
        input=BODY,
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    ).stdout
    interim = said is not None and ("early-hints" in said or version != "--http1.1")
    assert told.count(b" 103") == interim
    assert told.count(b"mcp-batching: active; max-delay-ms=5") == interim + (said is not None)
    assert json.loads(told.rpartition(b"\r\n\r\n")[2])["model"] == "mlp"


def test_nghttp(server: Server, tmp_path: Any) -> None:
    (tmp_path / "body").write_bytes(BODY)
    command = [program("nghttp"), "--verbose", "--data", str(tmp_path / "body"), "--header"]
    command += ["x-mcp-batch-capable: 1; max-delay-ms=5", f"http://127.0.0.1:{server.port}/v1/infer"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    assert ":status: 103" in told
    assert told.count("mcp-batching: active; max-delay-ms=5; min-size=3") == 2
    for setting in ("0xf0b0):1]", "0xf0b1):65535]", "0xf0b2):3]"):
        assert setting in told


def test_http_client_and_requests_see_no_103_unless_they_ask(server: Server) -> None:
    url = f"http://127.0.0.1:{server.port}/v1/infer"
    with requests.Session() as session:
        session.trust_env = False
        for said in (None, "1; max-delay-ms=5", "1; max-delay-ms=5", "1; max-delay-ms=5"):
            headers = {} if said is None else {"x-mcp-batch-capable": said}
            answer = session.post(url, BODY, headers=headers, timeout=PATIENCE)
            assert (answer.status_code, "mcp-batching" in answer.headers) == (200, said is not None)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    for said in ("1; max-delay-ms=5", "1; max-delay-ms=5; early-hints=1"):
        connection.request("POST", "/v1/infer", BODY, {"x-mcp-batch-capable": said})
        asked = "early-hints" in said
        response = connection.getresponse()
        assert response.status == (103 if asked else 200)  # this client takes a 103 for the answer
        response.read()
    connection.close()


def test_aiohttp_passes_over_a_103_that_it_asked_for(server: Server) -> None:
    async def ask() -> tuple[int, str]:
        headers = {"x-mcp-batch-capable": "1; max-delay-ms=5; early-hints=1"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"http://127.0.0.1:{server.port}/v1/infer", data=BODY, headers=headers) as answer,
        ):
            await answer.read()
            return answer.status, answer.headers["mcp-batching"]

    assert asyncio.run(ask()) == (200, "active; max-delay-ms=5; min-size=3")


def settings_frame(*values: tuple[int, int]) -> bytes:
    return frames.settings_frame(dict(values))


def test_the_document_and_the_metrics_show_sessions(server: Server) -> None:
    before = server.request("GET", "/v1/batching").json
    assert before["offer"] == {"max_delay_ms": 65_535, "min_size": 3, "min_size_limit": 255}
    with server.connect() as client:
        client.sendall(PREFACE + settings_frame((0xF0B0, 1), (0xF0B1, 5), (0xF0B2, 6)))
        block = b"\x83\x86" + literal(b":path", b"/v1/infer") + literal(b":authority", b"a")
        block += literal(b"x-mcp-batch-capable", b"1") + literal(b"content-type", b"application/json")
        client.sendall(frame(1, 4, 1, block) + frame(0, 1, 1, BODY))
        received = b""
        while b'"model":"mlp"' not in received:
            received += client.recv(65_536)
        document = server.request("GET", "/v1/batching").json
        session = document["sessions"][0]
        assert session.pop("since").endswith("Z")
        assert session.pop("connection") > 0
        assert session == {
            "carrier": "settings",
            "offer": {"max_delay_ms": 5, "min_size": 6},
            "negotiated": {"max_delay_ms": 5, "min_size": 6},
            "requests": 1,
        }
        assert (document["worker"], document["worker_sessions"]) == (0, 1)
        (carrier,) = [one for one in document["carriers"] if one["carrier"] == "settings"]
        (earlier,) = [one for one in before["carriers"] if one["carrier"] == "settings"]
        assert carrier == earlier | {
            "open": 1,
            "begun": earlier["begun"] + 1,
            "requests": earlier["requests"] + 1,
        }
        assert server.metric("mcp2026_batching_sessions", carrier="settings") == 1
        assert server.metric("mcp2026_http2_connections", batching="negotiated") == 1
    server.wait_until(
        lambda: server.metric("mcp2026_http2_connections", batching="negotiated") == 0, "it is closed"
    )
    for cause, count in batches(server).items():
        assert server.metric("mcp2026_batches_total", cause=cause) == count


def test_a_drain_ends_every_wait_and_takes_the_offer_back(model: Callable[[str], Any]) -> None:
    server = Server("--model-path", str(model("mlp")), "--threads", "1", "--negotiate-delay-ms", "65535")
    try:
        with server.connect() as client, ThreadPoolExecutor(1) as pool:
            client.sendall(PREFACE + settings_frame((0xF0B0, 1)))
            client.recv(65_536)
            waiting = pool.submit(infer, server, LONG)
            server.wait_until(lambda: server.metric("mcp2026_queue_rows") == 1, "one waits")
            server.process.send_signal(signal.SIGTERM)
            assert waiting.result(PATIENCE)[0] == 200
            received = b""
            while piece := client.recv(65_536):
                received += piece
            assert settings_frame((0xF0B0, 0)) in received
        assert server.wait() == 0
    finally:
        server.close()


def test_workers_count_together_and_no_negotiation_offers_nothing(model: Callable[[str], Any]) -> None:
    path = str(model("mlp"))
    two = Server("--model-path", path, "--threads", "1", "--workers", "2")
    none = Server("--model-path", path, "--threads", "1", "--no-negotiation")
    try:
        for _ in range(12):
            assert infer(two, "1; max-delay-ms=1")[0] == 200
        document = two.request("GET", "/v1/batching").json
        (carrier,) = [one for one in document["carriers"] if one["carrier"] == "header"]
        assert (carrier["begun"], carrier["requests"]) == (12, 12)
        assert sum(document["batches"].values()) == 12
        assert document["worker"] in (0, 1)
        assert "offer" not in none.request("GET", "/v1/batching").json
        status, headers = infer(none, "nonsense")
        assert (status, "mcp-batching" in headers) == (200, False)
        with none.connect() as client:
            client.sendall(PREFACE + settings_frame((0xF0B0, 1)))
            assert b"\xf0\xb0\x00\x00" not in client.recv(65_536)
    finally:
        two.close()
        none.close()
