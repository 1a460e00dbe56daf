"""Triton's perf_analyzer measures this server as it measures Triton."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.runtime import perf_analyzer
from tests.contract.runtime.open_inference_server import address, echo_model, serve, sums_model
from tests.contract.runtime.server_process import Server

pytestmark = [
    pytest.mark.skipif(
        perf_analyzer.command() is None,
        reason=f"perf_analyzer is not there; {perf_analyzer.GET_IT} fetches it",
    ),
    pytest.mark.serial(reason="it measures for windows of a fixed time"),
]

SHORT = ["--measurement-mode", "count_windows", "--measurement-request-count", "20"]
ALWAYS_STABLE = ["--stability-percentage", "999", "--max-trials", "3"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    sums_model(folder, "sums")
    echo_model(folder, "fixed", "FP32", 2, 2)
    echo_model(folder, "text", "BYTES", None, 1)
    server = serve(folder, ["sums", "fixed", "text"])
    yield server
    server.close()


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("http", ["-m", "sums", "-b", "4", "--concurrency-range", "2"]),
        ("http", ["-m", "text", "--shape", "x:1", "--string-length", "10"]),
        ("http", ["-m", "sums", "--input-tensor-format", "json", "--output-tensor-format", "json"]),
        ("http", ["-m", "sums", "--shared-memory", "system", "--output-shared-memory-size", "64"]),
        ("grpc", ["-m", "fixed"]),
        ("grpc", ["-m", "sums", "--streaming", "--async", "--concurrency-range", "2"]),
        ("grpc", ["-m", "sums", "--shared-memory", "system", "--output-shared-memory-size", "64"]),
    ],
)
def test_it_measures_and_finds_the_server_s_own_times(
    server: Server, tmp_path: Path, protocol: str, options: list[str]
) -> None:
    report = tmp_path / "report.csv"
    run = perf_analyzer.run(
        [*options, "-i", protocol, "-u", address(server, protocol), "-f", str(report), *SHORT, *ALWAYS_STABLE]
    )
    assert run.returncode == 0, run.stdout + run.stderr
    (row,) = csv.DictReader(report.read_text().splitlines())
    assert float(row["Inferences/Second"]) > 0
    assert float(row["Server Queue"]) > 0
    assert float(row["Server Compute Infer"]) > 0


def test_a_model_that_is_not_there_is_told_in_our_words(server: Server) -> None:
    run = perf_analyzer.run(["-m", "unknown", "-u", address(server, "http")])
    assert run.returncode != 0
    assert "no model 'unknown' is served here" in run.stdout + run.stderr
