"""Clients that ask for more than their share: others are served, and what the server holds is bounded."""

import gzip
import json
import os
import re
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.contract.runtime.many_requests import (
    GRPC_HEADERS,
    PREFACE,
    SETTINGS,
    Http1Client,
    Http2Client,
    frame,
    literal,
)
from tests.contract.runtime.open_inference_server import echo_model, serve
from tests.contract.runtime.server_process import PATIENCE, Server, post, read_all

_WIDE_WINDOWS = frame(SETTINGS, 0, 0, b"\0\4\x7f\xff\xff\xff") + frame(8, 0, 0, b"\x7f\0\0\0")
_INFER = b"/v2/models/fp32/infer"
_MIB = 1 << 20
Start = Callable[..., Server]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a server for an echo model of FP32; all end with the test."""
    echo_model(tmp_path, "fp32", "FP32", None, None)
    servers: list[Server] = []

    def start(*arguments: str) -> Server:
        servers.append(serve(tmp_path, ["fp32"], *arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def test_chunks_of_two_bytes_cost_what_they_hold(serving: Start) -> None:
    server = serving()
    before = server.resident_mib()
    with server.connect() as client:
        client.sendall(b"POST %b HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" % _INFER)
        for _ in range(80):
            client.sendall(b"2\r\n  \r\n" * 50_000)
        assert server.resident_mib() - before < 40  # as objects, the 8 MB were over 200
        client.sendall(b"0\r\n\r\n")
        assert b" 400 " in client.recv(4_096).split(b"\r\n")[0]


def unfinished_http1(server: Server) -> socket.socket:
    client = server.connect()
    client.sendall(b"POST %b HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % (_INFER, 4 * _MIB))
    with suppress(ConnectionError):
        client.sendall(bytes(3 * _MIB))
    return client


def unfinished_http2(server: Server) -> socket.socket:
    client = server.connect()
    client.sendall(PREFACE + _WIDE_WINDOWS)
    block = b"\x83\x86" + literal(b":path", _INFER) + literal(b":authority", b"a")
    with suppress(ConnectionError):
        for stream_id in (1, 3, 5):
            client.sendall(frame(1, 4, stream_id, block) + frame(0, 0, stream_id, bytes(16_384)) * 63)
    return client


@pytest.mark.parametrize("begin", [unfinished_http1, unfinished_http2])
def test_unfinished_bodies_of_all_connections_are_bounded(
    serving: Start, begin: Callable[[Server], socket.socket]
) -> None:
    server = serving("--max-body-mib", "4", "--queue-mib", "16")
    for _ in range(2):  # the second time, what the first held is counted no more
        refused = server.metric("mcp2026_request_failures_total", reason="queue_full")
        before = server.resident_mib()
        with ExitStack() as held:
            for _ in range(40):
                held.enter_context(begin(server))
            assert server.request("GET", "/healthz").status == 200
            now = server.metric("mcp2026_request_failures_total", reason="queue_full")
            assert now - refused >= 20
            assert server.resident_mib() - before < 64  # of 120 MiB
        server.wait_until(lambda: server.metric("mcp2026_open_connections") == 1, "all are gone")
        assert infer(server, [1.0]) == 200


def test_answers_that_nobody_reads_are_bounded(serving: Start) -> None:
    server = serving("--max-body-mib", "4", "--queue-mib", "16")
    document = tensor(_MIB // 2)
    body = document + bytes(2 * _MIB)
    length = b"Inference-Header-Content-Length: %d" % len(document)
    before = server.resident_mib()
    with ExitStack() as held:
        for _ in range(120):
            client = held.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.connect(("127.0.0.1", server.port))
            with suppress(ConnectionError):
                client.sendall(post(body, length, path=_INFER))
        assert infer(server, [1.0]) == 200
        assert server.resident_mib() - before < 120  # of 240 MiB
    assert infer(server, [1.0]) == 200


def test_bombs_over_grpc_hold_nobody_up(serving: Start) -> None:
    server = serving()
    bomb = gzip.compress(bytes(48 * _MIB), 9)
    message = b"\1" + len(bomb).to_bytes(4, "big") + bomb
    headers = (*GRPC_HEADERS, (b"grpc-encoding", b"gzip"))
    client, others = Http2Client(server.grpc_port), Http1Client(server.port)
    done = threading.Event()

    def throw() -> list[bytes]:
        path = b"/inference.GRPCInferenceService/Model"
        unary = client.post([(path + b"Infer", headers, message)] * 4)
        stream = client.post([(path + b"StreamInfer", headers, message * 2)])
        done.set()
        return [answer.headers[b"grpc-status"] for answer in (*unary, *stream)]

    with ThreadPoolExecutor() as pool:
        thrown = pool.submit(throw)
        answered = 0
        while not done.is_set():
            list(others.post([(b"/healthz", (), b"")]))
            answered += 1
        assert thrown.result() == [b"3"] * 4 + [b"0"]
    # Bombs on the event loop would let one pass after each at most.
    assert answered > 20
    client.close()
    others.close()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_bombs_that_come_together_are_bounded_together(serving: Start, protocol: str) -> None:
    server = serving("--queue-mib", "64")
    (worker,) = server.workers()
    before = highest_mib(worker)
    bomb = gzip.compress(bytes(48 * _MIB), 9)
    together = threading.Barrier(12)

    def throw(_: int) -> bytes:
        if protocol == "http":
            with server.connect() as client:
                together.wait(PATIENCE)
                client.sendall(post(bomb, b"Content-Encoding: gzip", path=_INFER))
                return client.recv(4_096).split(b" ")[1]
        client = Http2Client(server.grpc_port)
        together.wait(PATIENCE)
        headers = (*GRPC_HEADERS, (b"grpc-encoding", b"gzip"))
        message = b"\1" + len(bomb).to_bytes(4, "big") + bomb
        (answer,) = client.post([(b"/inference.GRPCInferenceService/ModelInfer", headers, message)])
        client.close()
        return answer.headers[b"grpc-status"]

    with ThreadPoolExecutor(12) as pool:
        statuses = set(pool.map(throw, range(12)))
    read, crowded = (b"400", b"503") if protocol == "http" else (b"3", b"14")
    assert read in statuses
    assert statuses <= {read, crowded}
    assert highest_mib(worker) - before < 160  # all in one piece, and one more while it is put together
    assert infer(server, [1.0]) == 200


def test_memory_of_unfinished_bodies_is_given_back_when_they_have_gone(serving: Start) -> None:
    server = serving()
    before = server.resident_mib()
    with ExitStack() as held:
        clients = [held.enter_context(server.connect()) for _ in range(5)]
        for client in clients:
            client.sendall(b"POST %b HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % (_INFER, 64 * _MIB))
        for _ in range(40 * 16):
            for client in clients:
                client.sendall(bytes(_MIB // 16))
        server.wait_until(lambda: server.resident_mib() - before > 180, "it is held")
    server.wait_until(lambda: server.resident_mib() - before < 24, "it is given back")


def test_without_descriptors_new_connections_wait_and_the_log_says_why(serving: Start) -> None:
    server = serving()
    (worker,) = server.workers()
    soft, hard = resource.prlimit(worker, resource.RLIMIT_NOFILE)
    resource.prlimit(worker, resource.RLIMIT_NOFILE, (64, hard))
    client = Http1Client(server.port)
    with ExitStack() as held:
        for _ in range(200):
            held.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE))
        late = held.enter_context(server.connect())
        late.sendall(post(tensor_of([1.0]), path=_INFER))
        told = server.wait_for_log(lambda line: "new connections wait" in line["message"])
        assert "no more file descriptors than 64" in told["message"]
        assert "ulimit -n" in told["message"]
        used = cpu_ticks(worker)
        for _ in range(100):
            (answer,) = client.post([(_INFER, (), tensor_of([1.0]))])
            assert answer.status == 200
        assert cpu_ticks(worker) - used < 100
        resource.prlimit(worker, resource.RLIMIT_NOFILE, (soft, hard))
        assert b" 200 " in late.recv(4_096).split(b"\r\n")[0]  # it has waited
    server.wait_until(lambda: descriptors(worker) < 40, "the others are gone")
    assert infer(server, [1.0]) == 200
    assert server.workers() == [worker]
    assert server.metric("mcp2026_accept_failures_total") >= 1
    assert sum("new connections wait" in line["message"] for line in server.log) == 1
    client.close()


def test_five_thousand_idle_connections(serving: Start) -> None:
    server = serving()
    before = server.resident_mib()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(5_000, most - 500)
    with ExitStack() as held:
        for _ in range(count):
            held.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE))
        assert infer(server, [1.0]) == 200
        assert server.metric("mcp2026_open_connections") >= count
        assert server.resident_mib() - before < 64


def test_regions_that_are_registered_without_end(serving: Start) -> None:
    server = serving()
    memory = Path("/dev/shm") / f"test-{os.getpid()}-regions"
    memory.write_bytes(bytes(64))
    client = Http1Client(server.port)
    try:
        document = json.dumps({"key": f"/{memory.name}", "offset": 0, "byte_size": 64}).encode()
        path = b"/v2/systemsharedmemory/region/r%d/register"
        statuses = [
            answer.status
            for start in range(0, 10_000, 20)
            for answer in client.post([(path % index, (), document) for index in range(start, start + 20)])
        ]
        assert statuses == [200] * 512 + [400] * 9_488
        (worker,) = server.workers()
        assert descriptors(worker) < 600
        assert [
            answer.status for answer in client.post([(b"/v2/systemsharedmemory/unregister", (), b"")])
        ] == [200]
        assert descriptors(worker) < 100
    finally:
        memory.unlink()
        client.close()


def test_random_paths_models_and_tenants_make_no_series(serving: Start) -> None:
    server = serving()
    infer(server, [1.0])
    series = len(server.request("GET", "/metrics").body.splitlines())
    client = Http1Client(server.port)
    for number in range(1_000):
        tenant = (b"x-mcp-tenant-id", b't%d"} 1\\' % number)
        answers = client.post(
            [
                (b"/p%d" % number, (tenant,), b""),
                (b"/v2/models/m%d%%22%%7d/infer" % number, (tenant,), b"{}"),
                (b"/v2/models/fp32/versions/%d/infer" % (number + 2), (tenant,), b"{}"),
                (_INFER, (tenant,), tensor_of([1.0])),
            ]
        )
        assert [answer.status for answer in answers] == [404, 404, 404, 200]
    assert len(server.request("GET", "/metrics").body.splitlines()) == series
    client.close()


def test_a_worker_that_is_killed_holds_up_no_change(serving: Start) -> None:
    server = serving("--workers", "2")
    killed = threading.Event()
    left = 60

    def change() -> None:
        nonlocal left
        while left > 0 or not killed.is_set():
            for verb in ("load", "unload"):
                with suppress(ConnectionError):  # it was the worker that is killed
                    assert server.request("POST", f"/v2/repository/models/fp32/{verb}").status in (200, 404)
                    left -= killed.is_set()

    with ThreadPoolExecutor() as pool:
        changes = [pool.submit(change) for _ in range(3)]
        os.kill(server.workers()[0], signal.SIGKILL)
        killed.set()
        for one in changes:
            one.result(PATIENCE)
    server.wait_until(lambda: server.metric("mcp2026_workers_ready") == 2, "both serve")


def test_loads_that_fail_leave_nothing_behind(serving: Start, tmp_path: Path) -> None:
    server = serving()
    folder = echo_model(tmp_path, "broken", "FP32", None, None).parent
    with (folder / "model.onnx").open("ab") as model:
        model.write(b"\xff" * (16 * _MIB))
    resident = []
    for _ in range(50):
        assert server.request("POST", "/v2/repository/models/broken/load").status == 400
        resident.append(server.resident_mib())
    assert max(resident[25:]) < max(resident[:5]) + 8
    assert server.request("GET", "/readyz").status == 200
    assert infer(server, [1.0]) == 200


def test_deadlines_of_any_length_are_kept_or_refused(serving: Start) -> None:
    client = Http2Client(serving().grpc_port)
    path, message = b"/inference.GRPCInferenceService/ServerLive", b"\0\0\0\0\0"
    for timeout in (b"0n", b"1n", b"99999999n", b"99999999H", b"1S"):
        (answer,) = client.post([(path, (*GRPC_HEADERS, (b"grpc-timeout", timeout)), message)])
        assert answer.headers[b"grpc-status"] in (b"0", b"4")
    for timeout in (b"999999999S", b"-1S", b"1", b"S", b"1.5S", b"1X"):
        (answer,) = client.post([(path, (*GRPC_HEADERS, (b"grpc-timeout", timeout)), message)])
        assert answer.headers[b"grpc-status"] == b"3"
    client.close()


def test_slow_clients_on_every_address_are_let_go(serving: Start, tmp_path: Path) -> None:
    paths = tmp_path / "http", tmp_path / "grpc"
    server = serving("--unix-socket", str(paths[0]), "--grpc-unix-socket", str(paths[1]))
    with ExitStack() as held:
        clients = []
        for address in (("127.0.0.1", server.port), ("127.0.0.1", server.grpc_port), *map(str, paths)):
            family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
            for beginning in (b"", b"P", b"POST / HT", PREFACE[:20], PREFACE, PREFACE + frame(4, 0, 0)[:5]):
                client = held.enter_context(socket.socket(family))
                client.settimeout(PATIENCE)
                client.connect(address)
                client.sendall(beginning)
                clients.append(client)
        assert infer(server, [1.0]) == 200
        for client in clients:
            read_all(client)  # until the server closes
    assert server.request("GET", "/readyz").status == 200


def infer(server: Server, values: list[float]) -> int:
    return server.request("POST", _INFER.decode(), tensor_of(values)).status


def tensor_of(values: list[float]) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, len(values)], "data": values}
    return json.dumps({"inputs": [tensor]}).encode()


def tensor(size: int) -> bytes:
    """Return the JSON of a request for `size` numbers that follow as bytes, and are answered as bytes."""
    parameters = {"binary_data_size": 4 * size}
    one = {"name": "x", "datatype": "FP32", "shape": [1, size], "parameters": parameters}
    return json.dumps({"inputs": [one], "parameters": {"binary_data_output": True}}).encode()


def highest_mib(pid: int) -> float:
    """Return the most memory that a process ever had."""
    match = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match.group(1)) / 1024


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().split()
    return int(fields[13]) + int(fields[14])
