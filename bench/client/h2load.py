"""A closed loop by h2load: one client for HTTP/1.1, HTTP/2 and gRPC, over TCP and Unix sockets.

It keeps a fixed number of requests on the way. It knows nothing of gRPC statuses, which come in trailers;
an error there has no body, so missing bytes tell it.

The warm-up is the first part of the same run, cut off afterwards. A run of its own would leave requests
behind that the server works on while the measurement begins. What is measured begins with the last answer of
the warm-up and ends with the last of all: a server that answers in batches would lose part of one else.
"""

import dataclasses
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.client.load import LoadResult, summarize
from bench.cores import Cores
from bench.errors import BenchError
from bench.exchange import Exchange
from bench.protocols import Protocol, connections_and_streams

WARM_UP_S = 2.0
ENDS_WITHIN_S = 90.0
OK = 200
GRPC_PREFIX_BYTES = 5
"""Compression flag and length before each message of gRPC."""
_WINDOW_BITS = "30"
"""Flow control windows that never hold an answer up."""

_REQUESTS = re.compile(
    r"^requests: \d+ total, \d+ started, (\d+) done, \d+ succeeded, (\d+) failed, ",
    re.MULTILINE,
)
_BODY_BYTES = re.compile(r"^traffic: .* headers \(space savings [^)]*\), \S+ \((\d+)\) data$", re.MULTILINE)


@dataclass(frozen=True)
class Summary:
    """The counts that h2load prints at its end; `failed` holds those of a wrong status and those without."""

    done: int
    failed: int
    body_bytes: int


def parse_summary(text: str) -> Summary:
    """Read the counts from what h2load printed.

    Raises:
        BenchError: they are not there; h2load has failed.

    """
    requests, body = _REQUESTS.search(text), _BODY_BYTES.search(text)
    if requests is None or body is None:
        raise BenchError(f"h2load printed no result:\n{text[-2000:]}")
    return Summary(done=int(requests[1]), failed=int(requests[2]), body_bytes=int(body[1]))


def parse_log(text: str, summary: Summary, warm_up_s: float, answer_bytes: int | None) -> LoadResult:
    """Return the result from h2load's log: a line of start time, HTTP status and latency in µs per request.

    What was answered in the first `warm_up_s` is left out. `answer_bytes` is the size of a good answer's body
    if all have the same, as with gRPC; else None.

    Raises:
        BenchError: there was no good answer after the warm-up.

    """
    starts, statuses, latencies = np.array(text.split(), np.int64).reshape(-1, 3).T
    good = statuses == OK
    errors = max(int(np.count_nonzero(~good)), summary.failed)
    # What was on the way at the end may be counted in bytes and not as done, so there can be more.
    empty = max(0, summary.done - summary.body_bytes // answer_bytes) if answer_bytes else 0
    if empty and empty == summary.done:
        raise BenchError(f"no good answer: gRPC refused all {summary.done} requests")
    answered = starts + latencies
    first = (starts.min() if starts.size else 0) + int(warm_up_s * 1e6)
    measured = good & (answered > first)
    if not measured.any():
        raise BenchError(f"no good answer after {warm_up_s:g} s, {errors} errors")
    before = answered[good & (answered <= first)]
    begin = before.max() if before.size else first
    seconds = float(answered[measured].max() - begin) / 1e6
    result = summarize(latencies[measured] / 1000.0, errors + empty, seconds)
    share = 1 - empty / summary.done if empty else 1.0
    return dataclasses.replace(result, rate=result.rate * share, answers=round(result.answers * share))


def run(
    exchange: Exchange, protocol: Protocol, concurrency: int, seconds: float, cores: Cores, answer_bytes: int
) -> LoadResult:
    """Load a server for `seconds` after a warm-up; the client runs on `cores`."""
    is_grpc = exchange.transport == "grpc"
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/dev/shm") as folder:
        body, log = Path(folder, "body"), Path(folder, "log")
        prefix = b"\0" + len(exchange.body).to_bytes(4, "big") if is_grpc else b""
        body.write_bytes(prefix + exchange.body)
        whole = WARM_UP_S + seconds
        output = _execute(command(exchange, protocol, concurrency, whole, body, log), cores, whole)
        size = answer_bytes + GRPC_PREFIX_BYTES if is_grpc else None
        return parse_log(log.read_text() if log.exists() else "", parse_summary(output), WARM_UP_S, size)


def _execute(words: list[str], cores: Cores, seconds: float) -> str:
    run = subprocess.run(
        cores.command(words),
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=seconds + ENDS_WITHIN_S,
        check=False,
    )
    return run.stdout + run.stderr


def command(
    exchange: Exchange, protocol: Protocol, concurrency: int, seconds: float, body: Path, log: Path
) -> list[str]:
    """Return the command line of h2load for a load; each request is a line in `log`."""
    connections, streams = connections_and_streams(protocol, concurrency)
    headers = exchange.headers
    if exchange.transport == "grpc":
        headers = (*headers, ("content-type", "application/grpc"), ("te", "trailers"))
    where = exchange.address
    return [
        *("h2load", "--clients", str(connections), "--max-concurrent-streams", str(streams)),
        *("--threads", "1", "--duration", f"{round(seconds * 1000)}ms"),
        *("--window-bits", _WINDOW_BITS, "--connection-window-bits", _WINDOW_BITS),
        *("--data", str(body)),
        *("--log-file", str(log)),
        *(word for name, value in headers for word in ("--header", f"{name}: {value}")),
        *(("--h1",) if exchange.transport == "http1" else ()),
        *(("--base-uri", f"unix:{where.unix}") if where.unix else ()),
        f"http://{where.authority}{exchange.path}",
    ]
