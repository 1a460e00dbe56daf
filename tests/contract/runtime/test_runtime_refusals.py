"""What a client can do wrong, each on the real process: a clear error, and the process lives on."""

import http.client
import json
import socket

import numpy as np
import pytest

from tests.contract.runtime.server_process import PATIENCE, post, read_all

MIB = 1024 * 1024


def refusal(server, body) -> tuple[int, dict]:
    reply = server.request("POST", "/v1/infer", body)
    return reply.status, reply.error


def values(count: int) -> list[float]:
    return [0.5] * count


def flat(count: int, shape: object, *more: object) -> dict[str, object]:
    return {"input": [*values(count), *more], "shape": shape}


GOOD = flat(16, [1, 16])


@pytest.mark.parametrize(
    ("body", "field", "rule", "words"),
    [
        pytest.param(flat(16, [1, 17]), "shape", "const", "does not fit", id="other dimension"),
        pytest.param(flat(16, [16]), "shape", "minItems", "1 dimensions", id="other rank"),
        pytest.param(flat(16, [-1, 16]), "shape[0]", "minimum", "out of range", id="negative"),
        pytest.param(flat(16, [0, 16]), "shape[0]", "minimum", "out of range", id="zero"),
        pytest.param(flat(16, [2, 16]), "shape", "const", "16 were sent", id="too few values"),
        pytest.param(flat(40, [2, 16]), "shape", "const", "40 were sent", id="too many values"),
        pytest.param(flat(16, [2**63, 16]), "shape[0]", "maximum", "out of range", id="overflow"),
        pytest.param(flat(16, [10**30, 16]), "shape[0]", "maximum", "100 bits", id="absurd"),
        pytest.param(flat(16, [10**400, 16]), "shape[0]", "maximum", "bits", id="no float either"),
        pytest.param(flat(16, [1.5, 16]), "shape[0]", "type", "1.5", id="fraction"),
        pytest.param(flat(16, "1,16"), "shape", "type", "a text", id="text"),
        pytest.param(flat(528, [33, 16]), "shape", "maximum", "33 rows", id="more rows than a batch"),
        pytest.param({"input": values(16)}, "shape", "required", "missing", id="no shape"),
        pytest.param({"shape": [1, 16]}, "input", "required", "missing", id="no input"),
        pytest.param(flat(0, [1, 16]), "shape", "const", "0 were sent", id="empty input"),
        pytest.param(flat(15, [1, 16], "1"), "input[15]", "type", "str", id="text value"),
        pytest.param(flat(15, [1, 16], True), "input[15]", "type", "bool", id="bool value"),
        pytest.param(flat(15, [1, 16], None), "input[15]", "type", "null", id="null value"),
        pytest.param(flat(0, [1, 16], values(16)), "input[0]", "type", "a list", id="nested"),
        pytest.param({"input": 3, "shape": [1, 16]}, "input", "type", "3", id="no list"),
        pytest.param(flat(15, [1, 16], 1e39), "input", "maximum", "too large", id="over float32"),
        pytest.param({**GOOD, "x": 1}, "x", "additionalProperties", "not a field", id="unknown field"),
        pytest.param(
            {"inputs": {"wrong": {"data": [], "shape": []}}},
            "inputs.wrong",
            "additionalProperties",
            "no such input",
            id="unknown input",
        ),
        pytest.param({"inputs": {}}, "inputs", "minProperties", "0 elements", id="input left out"),
        pytest.param({**GOOD, "inputs": {}}, "input", "not", "stands beside inputs", id="both forms"),
        pytest.param({**GOOD, "outputs": ["y"]}, "outputs", "enum", "'y'", id="unknown output"),
        pytest.param({**GOOD, "outputs": []}, "outputs", "minItems", "0 elements", id="no output"),
        pytest.param({**GOOD, "outputs": ["y", "y"]}, "outputs", "uniqueItems", "twice", id="output twice"),
        pytest.param(
            {**GOOD, "timeout_ms": 0}, "timeout_ms", "exclusiveMinimum", "out of range", id="no time"
        ),
        pytest.param({**GOOD, "timeout_ms": 1e9}, "timeout_ms", "maximum", "out of range", id="too long"),
        pytest.param({**GOOD, "id": None}, "id", "type", "null", id="null"),
        pytest.param(
            {**GOOD, "model": "none", "id": 1}, "id", "type", "1", id="the contract before the model"
        ),
        pytest.param([1, 2], "body", "type", "a list", id="a list for a body"),
    ],
)
def test_a_body_that_does_not_fit_names_the_field(shared, body, field: str, rule: str, words: str) -> None:
    status, error = refusal(shared("add"), json.dumps(body).encode())
    assert status == 400
    assert error["code"] == "invalid_argument"
    assert (error["field"], error["rule"]) == (field, rule)
    assert words in error["message"]
    assert error["allowed"]


def test_whole_numbers_may_be_written_as_json_has_them(shared) -> None:
    reply = shared("add").request("POST", "/v1/infer", json.dumps(flat(16, [1.0, 16])).encode())
    assert reply.status == 200


def test_a_shape_that_does_not_match_says_what_would(shared) -> None:
    _, error = refusal(shared("add"), {"input": values(16), "shape": [1, 17]})
    assert error["allowed"] == "[-1, 16] (-1: any size from 1)"


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_in_json_is_refused_by_name(shared, word: str) -> None:
    body = ('{"shape": [1, 16], "input": [' + "0.5, " * 15 + word + "]}").encode()
    status, error = refusal(shared("add"), body)
    assert (status, error["field"]) == (400, "input")
    assert word in error["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"\xff\xfe", b'{"input": [1,]}', b"[" * 100_000])
def test_what_is_no_json_object_is_refused(shared, body: bytes) -> None:
    status, error = refusal(shared("add"), body)
    assert (status, error["field"]) == (400, "body")


@pytest.mark.parametrize("opening", [b"[", b'{"a":'], ids=["lists", "objects"])
@pytest.mark.parametrize("before", [b'{"input":', b'{"inputs":{"input":{"data":', b""])
@pytest.mark.parametrize("depth", [200, 200_000])
def test_a_body_nested_without_end_is_refused(shared, opening: bytes, before: bytes, depth: int) -> None:
    closing = {b"[": b"]", b'{"a":': b"}"}[opening]
    body = before + opening * depth + b"1" + closing * depth + b"}" * before.count(b"{")
    status, error = refusal(shared("add"), body)
    assert (status, error["code"]) == (400, "invalid_argument")
    status, error = refusal(shared("add"), before + opening * depth)
    assert (status, error["code"]) == (400, "invalid_argument")


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**25])
def test_an_integer_that_does_not_fit_is_refused(shared, number: int) -> None:
    status, error = refusal(shared("integers"), {"input": [0, 0, 0, number], "shape": [1, 4]})
    assert (status, error["field"]) == (400, "input")


def test_inputs_that_disagree_about_rows_are_refused(shared) -> None:
    tensors = {
        "left": {"data": values(4), "shape": [1, 4]},
        "right": {"data": values(8), "shape": [2, 4]},
    }
    status, error = refusal(shared("pair"), {"inputs": tensors})
    assert (status, error["field"]) == (400, "shape")


def test_an_unknown_path_is_not_found(shared) -> None:
    reply = shared("add").request("GET", "/v1/nothing")
    assert (reply.status, reply.error["code"]) == (404, "not_found")
    known = reply.error["allowed"].split(", ")
    assert {"/healthz", "/v1/infer", "/v2/models/<model>[/versions/<version>]/infer"} <= set(known)
    reply = shared("add").request("GET", "/v2/nothing")
    assert (reply.status, "/v2/health/ready" in reply.json["error"]) == (404, True)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [("GET", "/v1/infer", "POST"), ("POST", "/readyz", "GET, HEAD"), ("DELETE", "/metrics", "GET, HEAD")],
)
def test_a_wrong_verb_is_told_the_right_one(shared, method: str, path: str, allow: str) -> None:
    reply = shared("add").request(method, path)
    assert (reply.status, reply.headers["allow"]) == (405, allow)


def test_a_body_of_200_mb_is_refused_and_memory_stays_flat(start) -> None:
    server = start("add")
    server.infer(np.zeros((1, 16), np.float32))
    before = server.resident_mib()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    connection.request("POST", "/v1/infer", b" " * (200 * MIB))
    reply = connection.getresponse()
    assert (reply.status, json.loads(reply.read())["error"]["code"]) == (413, "body_too_large")
    connection.close()
    assert server.resident_mib() < before + 16
    assert server.infer(np.zeros((1, 16), np.float32)).status == 200


def test_a_body_of_unknown_length_is_refused_at_the_limit(start) -> None:
    server = start("add", "--max-body-mib", "1")
    head = b"POST /v1/infer HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    answer = server.raw(head, *[chunk] * 40, b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    error = json.loads(answer.split(b"\r\n\r\n")[1])["error"]
    assert (error["field"], error["allowed"]) == ("body", "at most 1048576 bytes (--max-body-mib)")
    assert server.infer(np.zeros((1, 16), np.float32)).status == 200


def test_a_client_that_asks_before_it_sends_is_refused_before_it_sends(shared) -> None:
    server = shared("add")
    with server.connect() as client:
        client.sendall(
            b"POST /v1/infer HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 999999999\r\n\r\n"
        )
        assert read_all_until_head(client).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(shared) -> None:
    body = json.dumps({"input": values(16), "shape": [1, 16]}).encode()
    with shared("add").connect() as client:
        client.sendall(
            b"POST /v1/infer HTTP/1.1\r\nHost: t\r\nConnection: close\r\nExpect: 100-continue\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)
        )
        assert client.recv(1_000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert read_all(client).startswith(b"HTTP/1.1 200 ")


def read_all_until_head(client: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        piece = client.recv(65_536)
        assert piece, received
        received += piece
    return received


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(b"nonsense\r\n\r\n", 400, id="no HTTP"),
        pytest.param(b"GET /healthz HTTP/1.1\r\n\r\n", 400, id="no Host"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: t\r\nHost: u\r\n\r\n", 400, id="two Hosts"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: t\r\nhost: t\r\n\r\n", 400, id="the same Host twice"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: t\r\nA: " + b"x" * 200_000, 431, id="endless header"),
        pytest.param(
            b"GET / HTTP/1.1\r\nHost: t\r\n" + b"a: b\r\n" * 1_000 + b"\r\n", 431, id="endless headers"
        ),
        pytest.param(
            b"POST /v1/infer HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
            id="two lengths",
        ),
        pytest.param(b"POST /v1/infer HTTP/1.1\r\nHost: t\r\nContent-Length: -5\r\n\r\n", 400, id="minus"),
    ],
)
def test_what_is_not_http_is_refused_and_the_connection_closed(shared, request_bytes, status: int) -> None:
    server = shared("add")
    assert server.raw(request_bytes).startswith(b"HTTP/1.1 %d " % status)
    assert server.request("GET", "/healthz").status == 200


def test_trailers_without_end_are_refused(shared) -> None:
    head = (
        b"POST /v1/infer HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nTrailer: "
    )
    assert shared("add").raw(head, *[b"x" * 50_000] * 4).startswith(b"HTTP/1.1 431 ")


def test_a_full_queue_refuses_and_says_when_to_try_again(start) -> None:
    server = start("slow", "--queue-size", "4", "--max-batch-size", "4", "--prefetch-queue-depth", "2")
    body = json.dumps({"input": values(64), "shape": [4, 16]}).encode()
    clients = [server.connect() for _ in range(20)]
    for client in clients:
        client.sendall(post(body, b"Connection: close"))
    answers = [read_all(client) for client in clients]
    for client in clients:
        client.close()
    statuses = sorted({answer[9:12] for answer in answers})
    assert statuses == [b"200", b"503"]
    refused = next(answer for answer in answers if answer[9:12] == b"503")
    assert b"retry-after: 1\r\n" in refused
    assert b'"queue_full"' in refused
    assert b"4 rows may wait in this worker (--queue-size)" in refused


def test_a_deadline_is_answered_in_time_while_the_engine_is_busy(start) -> None:
    server = start("slow")
    x = {"input": values(16), "shape": [1, 16]}
    with server.connect() as busy:
        for _ in range(3):
            busy.sendall(post(json.dumps({"input": values(512), "shape": [32, 16]}).encode()))
        server.wait_until(lambda: server.metric("mcp2026_pending_requests") >= 1, "the engine works")
        reply = server.request("POST", "/v1/infer", {**x, "timeout_ms": 1})
    assert (reply.status, reply.error["code"]) == (504, "deadline_exceeded")
    assert reply.error["message"] == "no answer within 1 ms, the time allowed (the timeout of the request)"
    assert server.metric("mcp2026_request_failures_total", reason="deadline_exceeded") == 1


def test_labels_stay_bounded_whatever_clients_send(shared) -> None:
    server = shared("add")
    series = server.request("GET", "/metrics").body.count(b"\n")
    for number in range(50):
        server.request("GET", f"/random/{number}")
        server.infer(np.zeros((1, 16), np.float32), version_id=f"v{number}")
    assert server.request("GET", "/metrics").body.count(b"\n") == series
