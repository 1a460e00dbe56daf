"""Servers and models for the runtime's contract tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.contract.runtime.server_process import Server
from tools.models import generate


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function from a sample model's name to its file."""
    folder = tmp_path_factory.mktemp("models")
    return lambda name: generate(name, folder)


@pytest.fixture
def start(model: Callable[[str], Path]) -> Iterator[Callable[..., Server]]:
    """Return a function that starts a server for a sample model; all end with the test."""
    servers: list[Server] = []

    def start_server(name: str, *arguments: str, wait: bool = True) -> Server:
        server = Server("--model-path", str(model(name)), "--threads", "1", *arguments, wait=wait)
        servers.append(server)
        return server

    yield start_server
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def shared(model: Callable[[str], Path]) -> Iterator[Callable[[str], Server]]:
    """Return a function that gives one server per sample model to all tests of a module."""
    servers: dict[str, Server] = {}

    def get(name: str) -> Server:
        if name not in servers:
            servers[name] = Server("--model-path", str(model(name)), "--threads", "1")
        return servers[name]

    yield get
    for server in servers.values():
        server.close()


@pytest.fixture(scope="session")
def direct(model: Callable[[str], Path]) -> Callable[..., list[np.ndarray]]:
    """Return a function that runs a sample model by ONNX Runtime itself, with one thread."""
    sessions: dict[str, onnxruntime.InferenceSession] = {}

    def run(name: str, **inputs: np.ndarray) -> list[np.ndarray]:
        if name not in sessions:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            sessions[name] = onnxruntime.InferenceSession(
                str(model(name)), options, providers=["CPUExecutionProvider"]
            )
        return list(sessions[name].run(None, inputs))

    return run
