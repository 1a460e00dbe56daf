"""A real `mcp2026-server` on a free port, and clients that say exactly which bytes they send."""

import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

PATIENCE = 60.0
"""Longest that a test waits for something that will surely happen, in s."""

_COMMAND = [sys.executable, "-m", "mcp2026.runtime"]
_CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("MCP2026_")}


def run_server(
    *arguments: str, environment: dict[str, str] | None = None, descriptors: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a server that is expected to end by itself; it may open at most `descriptors`."""

    def limit() -> None:
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    return subprocess.run(
        [*_COMMAND, *arguments],
        env=_CLEAN | (environment or {}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        preexec_fn=limit,
    )


class Server:
    """A running server; its log is read all the time, so it never blocks on it."""

    def __init__(
        self,
        *arguments: str,
        wait: bool = True,
        port: int = 0,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [*_COMMAND, *arguments, "--port", str(port), "--log-format", "json", "--host", "127.0.0.1"],
            env=_CLEAN | (environment or {}),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[dict[str, Any]] = []
        self.other_lines: list[str] = []
        """What it wrote to stderr that is not a line of its log: a traceback, say."""
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self.port = self.grpc_port = 0
        if wait:
            told = self.wait_for_log(lambda line: "url" in line)
            self.port = int(told["url"].rsplit(":", 1)[1])
            self.grpc_port = int(told.get("grpc_url", ":0").rsplit(":", 1)[1])

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                self.other_lines.append(text)
                continue
            with self._news:
                self.log.append(line)
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def wait_for_log(self, wanted: Any, after: int = 0) -> dict[str, Any]:
        """Return the first line of the log, from number `after` on, that `wanted` accepts."""
        deadline = time.monotonic() + PATIENCE
        with self._news:
            while True:
                for line in self.log[after:]:
                    if wanted(line):
                        return line
                if not self._reader.is_alive() or time.monotonic() > deadline:
                    other = "".join(self.other_lines)
                    raise AssertionError(f"the server never said it; its log: {self.log}\n{other}")
                self._news.wait(1.0)

    def workers(self) -> list[int]:
        """Return the process ids of the workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return sorted(map(int, children))

    def resident_mib(self) -> float:
        """Return the memory of the parent and all workers in MiB."""
        total = 0
        for pid in (self.process.pid, *self.workers()):
            status = Path(f"/proc/{pid}/status").read_text()
            match = re.search(r"VmRSS:\s+(\d+)", status)
            total += int(match.group(1)) if match else 0
        return total / 1024

    def request(
        self,
        method: str,
        path: str,
        body: bytes | dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> "Reply":
        """Send one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            payload = json.dumps(body).encode() if isinstance(body, dict) else body
            connection.request(method, path, payload, headers or {})
            response = connection.getresponse()
            return Reply(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def infer(self, array: npt.NDArray[Any], **more: Any) -> "Reply":
        """Ask for the inference of one input."""
        body = {"input": array.ravel().tolist(), "shape": list(array.shape), **more}
        return self.request("POST", "/v1/infer", body)

    def raw(self, *pieces: bytes) -> bytes:
        """Send `pieces` one by one on a new connection and return all that comes back until it closes."""
        with self.connect() as client:
            for piece in pieces:
                client.sendall(piece)
            return read_all(client)

    def connect(self) -> socket.socket:
        """Return a new connection."""
        client = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of the series of `name` that have these labels."""
        total = 0.0
        for line in self.request("GET", "/metrics").body.decode().splitlines():
            match = re.fullmatch(re.escape(name) + r"(?:\{(.*)\})? (\S+)", line)
            if match:
                found = dict(re.findall(r'(\w+)="([^"]*)"', match.group(1) or ""))
                if labels.items() <= found.items():
                    total += float(match.group(2))
        return total

    def wait_until(self, condition: Any, what: str) -> None:
        """Poll until `condition()` holds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"never happened: {what}; log: {self.log[-5:]}"
            assert self.process.poll() is None or what.startswith("exit"), (
                f"the server ended: {self.log[-5:]}"
            )
            time.sleep(0.02)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Return the exit status of a server that is ending."""
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """End the server if a test has not done so."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(5)
        assert self.process.stderr is not None
        self.process.stderr.close()


class Reply:
    """A response."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, str]:
        return dict(self.json["error"])

    def array(self, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
        assert self.status == 200, self.body[:500]
        return np.array(self.json["output"], dtype).reshape(self.json["shape"])


def read_all(client: socket.socket) -> bytes:
    """Return everything until the other side closes or resets."""
    received = b""
    with suppress(ConnectionResetError):
        while piece := client.recv(65_536):
            received += piece
    return received


def post(body: bytes, *headers: bytes, path: bytes = b"/v1/infer") -> bytes:
    """Return the bytes of a POST with a Content-Length."""
    lines = [b"POST " + path + b" HTTP/1.1", b"Host: test", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def serving_config(path: Path, versions: Sequence[tuple[str, Path, int]], **batching: Any) -> Path:
    """Write a serving configuration of (version id, model file, weight) and return its path."""
    document = {
        "model": "model",
        "versions": [
            {"versionId": version_id, "path": str(file), "weight": weight}
            for version_id, file, weight in versions
        ],
        "batching": batching,
    }
    path.write_text(json.dumps(document))
    return path
