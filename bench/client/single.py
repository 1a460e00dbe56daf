"""One request and its answer, over every transport: before anything is measured."""

import http.client
import socket
import subprocess
import tempfile
from pathlib import Path

import grpc

from bench.errors import BenchError, NotSupportedError, WrongAnswerError
from bench.exchange import Address, Exchange
from bench.samples import Sample

PATIENCE_S = 60.0
NOT_SUPPORTED = frozenset({404, 405, 415, 501, 505})
"""HTTP statuses by which a server says that it has no such interface."""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP/1.1 over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(self._path)


def check(exchange: Exchange, sample: Sample) -> int:
    """Send one request, compare the answer with ONNX Runtime's, and return the size of the answer's body.

    Raises:
        NotSupportedError: the server has no such interface.
        WrongAnswerError: it answered something else.

    """
    for preparation in exchange.prepare:
        send(preparation)
    headers, body = send(exchange)
    try:
        output = exchange.decode(headers, body)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise WrongAnswerError(f"an answer that cannot be read: {error!r}: {body[:200]!r}") from error
    if not sample.accepts(output):
        raise WrongAnswerError(f"not what ONNX Runtime answers: {output.ravel()[:4]}…")
    return len(body)


def send(exchange: Exchange) -> tuple[dict[str, str], bytes]:
    """Return headers and body of the answer to one request."""
    send_one = {"http1": _http1, "http2": _http2, "grpc": _grpc}[exchange.transport]
    return send_one(exchange)


def _accept(status: int, body: bytes) -> None:
    if status in NOT_SUPPORTED:
        raise NotSupportedError(f"HTTP status {status}")
    if status != 200:
        raise WrongAnswerError(f"HTTP status {status}: {body[:200]!r}")


def _http1(exchange: Exchange) -> tuple[dict[str, str], bytes]:
    where = exchange.address
    connection = (
        _UnixConnection(where.unix)
        if where.unix
        else http.client.HTTPConnection("127.0.0.1", where.port, timeout=PATIENCE_S)
    )
    try:
        connection.request("POST", exchange.path, exchange.body, dict(exchange.headers))
        response = connection.getresponse()
        body = response.read()
    except (ConnectionRefusedError, FileNotFoundError) as error:
        raise NotSupportedError(f"nothing listens at {where}") from error
    except (OSError, http.client.HTTPException) as error:
        raise BenchError(f"no answer from {where}: {error!r}") from error
    finally:
        connection.close()
    _accept(response.status, body)
    return {name.lower(): value for name, value in response.getheaders()}, body


def _http2(exchange: Exchange) -> tuple[dict[str, str], bytes]:
    """Ask by curl: it speaks HTTP/2 by prior knowledge, also over a Unix socket."""
    with tempfile.TemporaryDirectory() as folder:
        request, head, answer = (Path(folder, name) for name in ("request", "head", "answer"))
        request.write_bytes(exchange.body)
        run = subprocess.run(
            [
                *("curl", "--silent", "--show-error", "--http2-prior-knowledge", "--noproxy", "*"),
                *("--max-time", f"{PATIENCE_S:.0f}", "--data-binary", f"@{request}"),
                *("--dump-header", str(head), "--output", str(answer), "--write-out", "%{http_code}"),
                *(word for name, value in exchange.headers for word in ("--header", f"{name}: {value}")),
                *(("--unix-socket", exchange.address.unix) if exchange.address.unix else ()),
                f"http://{exchange.address.authority}{exchange.path}",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            raise NotSupportedError(f"no HTTP/2: {run.stderr.strip()}")
        body = answer.read_bytes() if answer.exists() else b""
        _accept(int(run.stdout), body)
        return parse_head(head.read_text()), body


def parse_head(head: str) -> dict[str, str]:
    """Return the header fields of an answer by name in lower case."""
    lines = (line.partition(":") for line in head.splitlines()[1:] if ":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in lines}


def _grpc_target(where: Address) -> str:
    return f"unix:{where.unix}" if where.unix else f"127.0.0.1:{where.port}"


def _grpc(exchange: Exchange) -> tuple[dict[str, str], bytes]:
    options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(_grpc_target(exchange.address), options) as channel:
        call = channel.unary_unary(exchange.path, lambda body: body, lambda body: body)
        try:
            body: bytes = call(exchange.body, timeout=PATIENCE_S)
        except grpc.RpcError as error:
            status = error.code()
            problem = f"gRPC status {status.name}: {error.details()}"
            if status in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAVAILABLE):
                raise NotSupportedError(problem) from error
            raise WrongAnswerError(problem) from error
    return {}, body
