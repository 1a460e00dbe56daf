"""What h2load 1.52 printed in real runs of 20 requests is read right, also what gRPC refused."""

from pathlib import Path

import pytest

from bench.client import h2load
from bench.client.h2load import Summary, parse_log, parse_summary
from bench.dialects import flat
from bench.errors import BenchError
from bench.exchange import Address, Exchange
from bench.protocols import PROTOCOLS, connections_and_streams
from bench.samples import SHAPES, Sample

RECORDED = Path(__file__).parent / "recorded"
GRPC_ANSWER_BYTES = 99
"""Of the recorded run: a ModelInferResponse of 94 bytes with its prefix."""


def recorded(name: str) -> tuple[Summary, str]:
    return parse_summary((RECORDED / f"{name}.txt").read_text()), (RECORDED / f"{name}.tsv").read_text()


def seconds_of(log: str) -> float:
    """Return the time from the first request to the last answer."""
    lines = [[int(word) for word in line.split()] for line in log.splitlines()]
    return (max(line[0] + line[2] for line in lines) - min(line[0] for line in lines)) / 1e6


def test_good_answers_give_rate_and_percentiles() -> None:
    summary, log = recorded("http1")
    assert (summary.done, summary.failed) == (20, 0)
    result = parse_log(log, summary, 0.0, None)
    assert (result.answers, result.errors) == (20, 0)
    assert result.rate == pytest.approx(20 / seconds_of(log))
    latencies = sorted(int(line.split()[2]) / 1000 for line in log.splitlines())
    assert latencies[9] <= result.p50_ms <= latencies[10]
    assert latencies[18] <= result.p99_ms <= latencies[19]


def test_no_good_answer_is_a_failure_not_a_rate_of_zero() -> None:
    summary, log = recorded("http1_refused")
    assert (summary.done, summary.failed) == (20, 20)
    with pytest.raises(BenchError, match="no good answer after 0 s, 20 errors"):
        parse_log(log, summary, 0.0, None)


def test_good_answers_over_grpc_account_for_all_bytes() -> None:
    summary, log = recorded("grpc")
    assert summary.body_bytes == 20 * GRPC_ANSWER_BYTES
    result = parse_log(log, summary, 0.0, GRPC_ANSWER_BYTES)
    assert (result.answers, result.errors) == (20, 0)
    assert result.rate == pytest.approx(20 / seconds_of(log))


def test_requests_that_grpc_refuses_with_http_status_200_are_errors() -> None:
    summary, log = recorded("grpc_refused")
    assert (summary.done, summary.failed, summary.body_bytes) == (20, 0, 0)
    with pytest.raises(BenchError, match="gRPC refused all 20"):
        parse_log(log, summary, 0.0, GRPC_ANSWER_BYTES)


def test_some_refused_over_grpc_lower_the_rate_by_their_number() -> None:
    summary, log = recorded("grpc")
    partly = Summary(summary.done, summary.failed, 15 * GRPC_ANSWER_BYTES)
    result = parse_log(log, partly, 0.0, GRPC_ANSWER_BYTES)
    assert (result.answers, result.errors) == (15, 5)
    assert result.rate == pytest.approx(15 / seconds_of(log))


def test_lost_requests_are_counted_once() -> None:
    log = "1\t200\t1000\n2\t503\t10\n3\t-1\t10\n"
    result = parse_log(log, Summary(done=3, failed=2, body_bytes=0), 0.0, None)
    assert (result.answers, result.errors) == (1, 2)


def test_the_warm_up_is_cut_off_and_batches_count_whole() -> None:
    """A batch of 4 each 400 ms from 100 ms on, for 3.2 s: 10 answers/s, whatever the load's length."""
    starts = [0] * 4 + [at for at in range(100, 3_200, 400) for _ in range(4)]
    answers = [at for at in range(100, 3_300, 400) for _ in range(4)]
    log = "".join(
        f"{start}000\t200\t{answer - start}000\n" for start, answer in zip(starts, answers, strict=False)
    )
    result = parse_log(log, Summary(done=32, failed=0, body_bytes=0), 1.0, None)
    assert result.rate == pytest.approx(10)
    assert (result.answers, result.p50_ms, result.p99_ms) == (20, 400, 400)


def test_another_output_is_refused_with_its_text() -> None:
    with pytest.raises(BenchError, match="could not connect"):
        parse_summary("could not connect to host\n")


@pytest.mark.parametrize(
    ("protocol", "concurrency", "expected"),
    [
        ("json", 64, (64, 1)),
        ("unix", 8, (8, 1)),
        ("http2", 1, (1, 1)),
        ("http2", 8, (8, 1)),
        ("grpc", 64, (8, 8)),
        ("grpc", 12, (6, 2)),
        ("grpc", 7, (7, 1)),
        ("grpc", 11, (1, 11)),
    ],
)
def test_requests_are_spread_over_few_connections_where_streams_share_one(
    protocol: str, concurrency: int, expected: tuple[int, int]
) -> None:
    assert connections_and_streams(PROTOCOLS[protocol], concurrency) == expected


def command(protocol: str, address: Address) -> list[str]:
    sample = Sample("add", Path("add.onnx"))
    assert sample.shape == SHAPES["add"]
    transport = PROTOCOLS[protocol].transport
    exchange = Exchange(transport, address, "/v1/infer", *flat(sample.row))
    return h2load.command(exchange, PROTOCOLS[protocol], 8, 2, Path("body"), Path("log"))


def test_the_command_says_transport_and_socket() -> None:
    http1 = command("json", Address(8080))
    assert "--h1" in http1
    assert http1[-1] == "http://127.0.0.1:8080/v1/infer"
    assert "--h1" not in command("http2", Address(8080))
    grpc = command("grpc", Address(8081))
    assert "te: trailers" in grpc
    unix = command("unix", Address(unix="/run/s.sock"))
    assert unix[unix.index("--base-uri") + 1] == "unix:/run/s.sock"
