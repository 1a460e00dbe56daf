"""Readiness, drain, and workers that die: what was accepted is answered."""

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.contract.runtime.server_process import PATIENCE, post, read_all

X = np.zeros((1, 16), np.float32)
LONG = np.zeros((32, 16), np.float32)
"""For the slow model: a quarter of a second of one idle core."""
BODY = json.dumps({"input": [0.5] * 16, "shape": [1, 16]}).encode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_that_runs_when_the_signal_comes_is_answered(start, direct, number) -> None:
    server = start("slow", "--workers", "2")
    with ThreadPoolExecutor(6) as pool:
        running = [pool.submit(server.infer, LONG) for _ in range(6)]
        server.wait_until(lambda: server.metric("mcp2026_pending_requests") >= 1, "a request runs")
        server.wait_until(lambda: server.metric("mcp2026_open_connections") >= 2, "connections are open")
        server.process.send_signal(number)
        replies = [one.result(PATIENCE) for one in running if not _refused(one)]
    assert replies
    for reply in replies:
        np.testing.assert_allclose(reply.array(), direct("slow", input=LONG)[0], rtol=1e-3, atol=1e-4)
    assert server.wait() == 0


def _refused(future) -> bool:
    return isinstance(future.exception(PATIENCE), ConnectionRefusedError)


def test_a_request_that_is_half_sent_when_the_signal_comes_is_answered(start) -> None:
    server = start("add")
    request = post(BODY)
    with server.connect() as client:
        client.sendall(request[:-20])
        server.wait_until(lambda: server.metric("mcp2026_open_connections") >= 2, "the connection is open")
        server.process.send_signal(signal.SIGTERM)
        server.wait_until(lambda: _refuses_connections(server), "the worker drains")
        client.sendall(request[-20:])
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close\r\n" in answer
    assert server.wait() == 0


def _refuses_connections(server) -> bool:
    try:
        server.connect().close()
    except ConnectionRefusedError:
        return True
    return False


def test_the_lame_duck_is_unready_and_serves(start) -> None:
    server = start("add", "--lame-duck-seconds", "2")
    server.process.send_signal(signal.SIGTERM)
    server.wait_until(lambda: server.request("GET", "/readyz").status == 503, "unready")
    ready = server.request("GET", "/readyz")
    assert (ready.status, ready.body) == (503, b"lame duck\n")
    assert server.request("GET", "/healthz").status == 200
    reply = server.infer(X)
    assert (reply.status, reply.headers["connection"]) == (200, "close")
    assert server.wait() == 0


def test_an_idle_connection_does_not_hold_up_the_exit(start) -> None:
    server = start("add")
    with server.connect() as client:
        client.sendall(post(BODY))
        assert client.recv(65_536).startswith(b"HTTP/1.1 200 ")
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 10
        assert client.recv(1) == b""


def test_a_client_that_never_finishes_holds_up_the_exit_only_for_the_drain_time(start) -> None:
    server = start("add", "--drain-seconds", "0.5")
    with server.connect() as client:
        client.sendall(post(BODY)[:-1])
        server.wait_until(lambda: server.metric("mcp2026_open_connections") >= 2, "the connection is open")
        assert server.stop() == 0


def test_the_server_is_live_but_unready_while_it_loads(model) -> None:
    from tests.contract.runtime.server_process import Server

    server = Server("--model-path", str(model("resnet50")), "--workers", "2", wait=False)
    try:
        line = server.wait_for_log(lambda line: "listening" in line)
        server.port = int(line["listening"])
        statuses = set()
        while (reply := server.request("GET", "/readyz")).status != 200:
            assert (reply.status, reply.body) == (503, b"loading\n")
            statuses.add(server.request("GET", "/healthz").status)
        assert statuses == {200}
        assert server.infer(np.zeros((1, 3, 224, 224), np.float32)).status == 200
    finally:
        server.close()


def test_a_killed_worker_is_replaced_and_the_service_goes_on(start) -> None:
    server = start("add", "--workers", "2")
    for _ in range(10):
        assert server.infer(X).status == 200
    victim, survivor = server.workers()
    os.kill(victim, signal.SIGKILL)
    server.wait_for_log(lambda line: "SIGKILL" in line["message"])
    assert server.infer(X).status == 200  # the other worker serves meanwhile
    server.wait_for_log(lambda line: "serves again" in line["message"])
    server.wait_until(lambda: server.metric("mcp2026_workers_ready") == 2, "both workers are ready")
    assert survivor in server.workers()
    assert victim not in server.workers()
    assert len(server.workers()) == 2
    for _ in range(20):
        assert server.infer(X).status == 200
    assert server.metric("mcp2026_worker_restarts_total") == 1
    assert server.metric("mcp2026_requests_total", code="200") == 31  # counters survive their worker
    assert server.stop() == 0


def test_workers_do_not_outlive_a_killed_parent(start) -> None:
    server = start("add", "--workers", "2")
    workers = server.workers()
    server.process.kill()
    server.process.wait(PATIENCE)
    server.wait_until(lambda: not any(_alive(pid) for pid in workers), "exit of the workers")


def _alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def test_half_a_request_and_a_disconnect_leave_the_server_well(start) -> None:
    server = start("add")
    for cut in (1, 20, 60, len(post(BODY)) - 1):
        with server.connect() as client:
            client.sendall(post(BODY)[:cut])
    server.wait_until(lambda: server.metric("mcp2026_open_connections") == 1, "the others are gone")
    assert server.infer(X).status == 200


def test_callers_that_leave_while_their_batch_runs_hurt_nobody(start, direct) -> None:
    server = start("slow")
    inputs = [np.full((1, 16), n, np.float32) for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        leavers = [server.connect() for _ in range(6)]
        for client in leavers:
            client.sendall(post(json.dumps({"input": [0.5] * 512, "shape": [32, 16]}).encode()))
        server.wait_until(lambda: server.metric("mcp2026_pending_requests") >= 1, "they run")
        running = [pool.submit(server.infer, x) for x in inputs]
        for client in leavers:
            client.close()
        for x, one in zip(inputs, running, strict=True):
            y = one.result(PATIENCE).array()
            np.testing.assert_allclose(y, direct("slow", input=x)[0], rtol=1e-3, atol=1e-4)
    server.wait_until(lambda: server.metric("mcp2026_pending_requests") == 0, "nothing is left")


def test_a_request_in_pieces_of_one_byte_is_a_request(start) -> None:
    server = start("add")
    assert server.raw(*(bytes([b]) for b in post(BODY, b"Connection: close"))).startswith(b"HTTP/1.1 200 ")
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"
    head = b"POST /v1/infer HTTP/1.1\r\nHost: t\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert server.raw(*(bytes([b]) for b in head + chunks)).startswith(b"HTTP/1.1 200 ")


def test_pipelined_requests_are_answered_in_order(start) -> None:
    server = start("add")
    requests = b"".join(
        post(json.dumps({"input": [n] * 16, "shape": [1, 16], "id": str(n)}).encode()) for n in range(100)
    )
    last = b"GET /healthz HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
    with server.connect() as client:
        sender = threading.Thread(target=client.sendall, args=(requests + last,))
        sender.start()
        answer = read_all(client)
        sender.join()
    ids = [part.split(b'"', 1)[0] for part in answer.split(b'"id":"')[1:]]
    assert ids == [str(n).encode() for n in range(100)]
    assert answer.endswith(b"ok\n")


def test_an_offer_to_upgrade_is_ignored_and_http_10_stays_only_if_it_asks(start) -> None:
    server = start("add")
    offer = post(BODY, b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk")
    answer = server.raw(offer, post(BODY, b"Connection: close"))
    assert answer.count(b"HTTP/1.1 200 ") == 2
    old = b"POST /v1/infer HTTP/1.0\r\n%bContent-Length: %d\r\n\r\n"
    asks = old % (b"Connection: keep-alive\r\n", len(BODY)) + BODY
    answer = server.raw(asks, asks, old % (b"", len(BODY)) + BODY)
    assert answer.count(b"HTTP/1.1 200 ") == 3
    assert answer.count(b"connection: keep-alive\r\n") == 2
    assert answer.count(b"connection: close\r\n") == 1


def test_ten_thousand_requests_leave_no_memory_behind(start) -> None:
    server = start("add")

    def burst(count: int) -> None:
        with server.connect() as client:
            for _ in range(count // 50):
                client.sendall(post(BODY) * 50)
                answered = 0
                while answered < 50:
                    answered += client.recv(1 << 20).count(b"HTTP/1.1 200 ")

    burst(2_000)
    before = server.resident_mib()
    burst(10_000)
    assert server.resident_mib() < before + 8
