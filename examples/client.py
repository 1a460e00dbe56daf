"""Ask a served model by `mcp2026.client`: over every transport, many at a time, blocking and with asyncio.

`python examples/client.py --serve` starts a server with a small model on this machine, asks, checks and stops
it. Without `--serve` it asks the server at `--url`, whose model must be `mlp`. Exit code 0: all answers
are equal.
"""

import argparse
import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from mcp2026.client import AsyncClient, Client, ConnectionFailedError, InferenceResult, InvalidRequestError

ROOT = Path(__file__).resolve().parent.parent
MODEL = "mlp"
ROWS = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)


@contextlib.contextmanager
def served() -> Iterator[list[str]]:
    """Serve the sample model while the block runs, and give the addresses of the server."""
    http, grpc = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="mcp2026-example-") as folder:
        make = [sys.executable, "-m", "tools.models", MODEL, "--output", folder]
        subprocess.run(make, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        command = [
            *(sys.executable, "-m", "mcp2026.runtime", "--model-path", f"{folder}/{MODEL}.onnx"),
            *("--port", str(http), "--grpc-port", str(grpc), "--log-level", "WARNING"),
            *("--unix-socket", f"{folder}/http.sock", "--grpc-unix-socket", f"{folder}/grpc.sock"),
        ]
        server = subprocess.Popen(command)
        try:
            wait_until_ready(f"http://127.0.0.1:{http}", server)
            yield [
                f"http://127.0.0.1:{http}",
                f"h2://127.0.0.1:{http}",
                f"grpc://127.0.0.1:{grpc}",
                f"unix://{folder}/http.sock",
                f"h2+unix://{folder}/http.sock",
                f"grpc+unix://{folder}/grpc.sock",
            ]
        finally:
            server.terminate()
            server.wait(30)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_ready(url: str, server: subprocess.Popen[bytes]) -> None:
    """Ask until the server is ready to answer."""
    with Client(url) as client:
        while not client.ready(timeout=5):
            try:
                raise SystemExit(f"the server ended with exit code {server.wait(0.1)}")
            except subprocess.TimeoutExpired:
                continue


def ask(url: str) -> InferenceResult:
    """Return one answer, and print what came with it."""
    with Client(url, timeout=10) as client:
        result = client.infer({"input": ROWS}, model=MODEL, priority=1, tenant="acme")
        scheme = url.partition("://")[0]
        print(f"{scheme:<10} {result!r}, batching: {result.batching}")
        return result


def ask_from_threads(url: str) -> list[InferenceResult]:
    """Ask eight times at once: threads share a client, and the server makes batches of their rows."""
    with Client(url) as client, ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(client.infer, {"input": ROWS}, model=MODEL) for _ in range(8)]
        return [one.result() for one in asked]


async def ask_from_tasks(url: str) -> list[InferenceResult]:
    """Ask eight times at once, with asyncio."""
    async with AsyncClient(url) as client:
        return await asyncio.gather(*(client.infer({"input": ROWS}, model=MODEL) for _ in range(8)))


def ask_wrongly(url: str) -> None:
    """Show what an error says."""
    with Client(url) as client:
        try:
            client.infer({"input": ROWS.astype(np.float64)}, model=MODEL)
        except InvalidRequestError as error:
            print(f"refused: field {error.field}, allowed {error.allowed}")


def ask_everywhere(urls: list[str]) -> bool:
    """Return whether all answers are equal."""
    with Client(urls[0]) as client:
        described = client.model(MODEL)
        print(f"{described.name} takes {described.inputs} and gives {described.outputs}")
    results = [ask(url) for url in urls]
    for url in urls:
        results += ask_from_threads(url)
        results += asyncio.run(ask_from_tasks(url))
    ask_wrongly(urls[0])
    expected = results[0]["output"]
    # Rows of a larger batch may differ in their last bits.
    equal = sum(np.allclose(result["output"], expected, rtol=1e-5, atol=1e-6) for result in results)
    print(f"{equal} of {len(results)} answers are equal")
    return equal == len(results)


def main() -> None:
    """Ask, print, and exit 0 if all answers are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--serve", action="store_true", help="start a server on this machine for the time of the check"
    )
    parser.add_argument("--url", default="http://localhost:8080", help="server to ask; default: %(default)s")
    arguments = parser.parse_args()
    with served() if arguments.serve else contextlib.nullcontext([arguments.url]) as urls:
        try:
            right = ask_everywhere(urls)
        except ConnectionFailedError as error:
            sys.exit(f"{error}; --serve starts a server for the check")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
