"""Starting: what is wrong is said once, in words that help, and nothing is left half-started."""

import hashlib
import json
import os
import socket
from pathlib import Path

import numpy as np
import pytest

from tests.contract.runtime.server_process import Server, run_server
from tests.loopback import free_port


def failure(*arguments: str) -> tuple[int, str]:
    """Return the exit status and the one error; what the log tells meanwhile is no error."""
    run = run_server(*arguments)
    assert run.stdout == ""
    lines = [line for line in run.stderr.splitlines() if " INFO " not in line]
    assert len(lines) == 1, f"one error, said once: {run.stderr}"
    return run.returncode, lines[0]


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing.onnx"
    status, message = failure("--model-path", str(path), "--workers", "4")
    assert status == 1
    assert f"{path}: no such file" in message
    assert "python -m tools.models" in message


@pytest.mark.parametrize("keep", [0.3, 0.9, 0.999])
def test_a_truncated_model_is_named(model, tmp_path: Path, keep: float) -> None:
    path = tmp_path / "cut.onnx"
    whole = model("mlp").read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    status, message = failure("--model-path", str(path), "--workers", "2")
    assert status == 1
    assert f"{path}: the file is truncated" in message
    assert "again" in message


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a model at all\n",
        b"\x89PNG\r\n\x1a\n" + bytes(500),
        b"PK\x03\x04" + bytes(500),
        b"{}",
        bytes(100),
    ],
    ids=["empty", "text", "png", "zip", "json", "zeros"],
)
def test_what_is_no_onnx_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "thing.onnx"
    path.write_bytes(content)
    status, message = failure("--model-path", str(path))
    assert status == 1
    assert str(path) in message
    assert "not an ONNX model" in message or "empty" in message


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    status, message = failure("--model-path", str(tmp_path))
    assert status == 1
    assert "it is a folder" in message


def test_a_pipe_is_no_model_and_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe.onnx"
    os.mkfifo(path)
    status, message = failure("--model-path", str(path))
    assert status == 1
    assert f"{path}: it is no regular file" in message


@pytest.mark.parametrize(
    "path",
    ["/tmp/" + "x" * 300 + ".onnx", "/tmp/" + "x/" * 5_000, "with\0nul", "half a pair \ud800", ""],
    ids=["long name", "long path", "NUL", "surrogate", "empty"],
)
def test_a_path_that_no_file_can_have_is_named(tmp_path: Path, path: str) -> None:
    config = tmp_path / "serving.json"
    config.write_text(json.dumps({"model": "m", "versions": [{"versionId": "v1", "path": path}]}))
    status, message = failure("--serving-config", str(config))
    assert status in (1, 2)
    assert message.startswith("mcp2026-server: ")


@pytest.mark.parametrize("depth", [100, 100_000])
def test_a_serving_configuration_nested_too_deeply_is_named(tmp_path: Path, depth: int) -> None:
    config = tmp_path / "serving.json"
    config.write_text('{"model": ' + "[" * depth + "]" * depth + "}")
    status, message = failure("--serving-config", str(config))
    assert status == 2
    assert str(config) in message


@pytest.mark.parametrize("host", ["", "no.such.host.invalid", "x" * 300, "two..dots"])
def test_a_host_that_is_none_is_named(model, host: str) -> None:
    status, message = failure("--model-path", str(model("add")), "--port", "0", "--host", host)
    assert status == 1
    assert f"cannot listen on {host}" in message


def test_a_metrics_port_in_use_is_told_by_its_own_flag(model, shared) -> None:
    port = str(shared("add").port)
    status, message = failure(
        "--model-path", str(model("add")), "--host", "127.0.0.1", "--port", "0", "--metrics-port", port
    )
    assert status == 1
    assert f"port {port} is in use" in message
    assert message.endswith("--metrics-port")


@pytest.mark.parametrize("descriptors", [9, 11, 13, 15])
def test_without_descriptors_the_server_ends_and_says_so(model, descriptors: int) -> None:
    """Never half-started, whether it is the port or a worker that cannot be had."""
    run = run_server(
        "--model-path", str(model("add")), "--port", "0", "--workers", "2", descriptors=descriptors
    )
    assert run.returncode == 1
    assert "Too many open files" in run.stderr.splitlines()[-1]
    assert "Traceback" not in run.stderr


def test_a_model_that_onnx_runtime_refuses_is_named_once_by_four_workers(model, tmp_path: Path) -> None:
    path = tmp_path / "odd.onnx"
    path.write_bytes(model("add").read_bytes().replace(b"Add", b"Odd"))
    status, message = failure("--model-path", str(path), "--workers", "4", "--port", "0")
    assert status == 1
    assert str(path) in message
    assert "Odd" in message


def test_another_digest_than_asked_for_is_refused(model, tmp_path: Path) -> None:
    file = model("add")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    config = tmp_path / "serving.json"

    def write(sha256: str) -> None:
        version = {"versionId": "v1", "path": str(file), "sha256": sha256}
        config.write_text(json.dumps({"model": "m", "versions": [version]}))

    write("0" * 64)
    status, message = failure("--serving-config", str(config), "--port", "0")
    assert status == 1
    assert digest in message
    assert "sha256" in message
    write(digest)
    server = Server("--serving-config", str(config))
    try:
        assert server.infer(np.zeros((1, 16), np.float32)).status == 200
    finally:
        server.close()


def test_a_port_in_use_is_named(model) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        status, message = failure(
            "--model-path", str(model("add")), "--host", "127.0.0.1", "--port", port, "--workers", "2"
        )
    assert status == 1
    assert f"port {port} is in use" in message


def test_a_port_of_another_server_of_ours_is_in_use_too(model, shared) -> None:
    port = str(shared("add").port)
    status, message = failure("--model-path", str(model("add")), "--host", "127.0.0.1", "--port", port)
    assert status == 1
    assert f"port {port} is in use" in message


def test_a_provider_that_is_not_there_is_refused_with_those_that_are(model) -> None:
    status, message = failure("--model-path", str(model("add")), "--provider", "tensorrt", "--port", "0")
    assert status == 1
    assert "--provider" in message
    assert "auto, cpu" in message


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--workers", "0", "1 to 64"),
        ("--workers", "65", "1 to 64"),
        ("--max-batch-size", "3", "4 to 128"),
        ("--max-batch-size", "129", "4 to 128"),
        ("--prefetch-queue-depth", "1", "2 to 32"),
        ("--prefetch-queue-depth", "33", "2 to 32"),
        ("--port", "70000", "0 to 65535"),
    ],
)
def test_a_flag_out_of_range_names_flag_and_range(model, flag: str, value: str, words: str) -> None:
    status, message = failure("--model-path", str(model("add")), flag, value)
    assert status == 2
    assert message.startswith(f"mcp2026-server: {flag}: ")
    assert words in message


def test_every_worker_is_counted_in_one_scrape_on_either_port(model) -> None:
    metrics_port = free_port()
    server = Server("--model-path", str(model("add")), "--workers", "2", "--metrics-port", str(metrics_port))
    try:
        x = np.zeros((1, 16), np.float32)
        for _ in range(60):  # a connection each: the kernel spreads them over both workers
            assert server.infer(x).status == 200
        assert server.metric("mcp2026_requests_total", code="200") == 60
        assert server.metric("mcp2026_workers_ready") == 2
        server.port = metrics_port
        assert server.metric("mcp2026_requests_total", code="200") == 60
        assert server.request("GET", "/readyz").status == 200
        assert server.request("POST", "/v1/infer", b"{}").status == 404
    finally:
        server.close()
