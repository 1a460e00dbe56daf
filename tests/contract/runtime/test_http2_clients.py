"""HTTP/2 as real clients speak it: h2spec, curl and nghttp, over TCP and Unix sockets."""

import hashlib
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp2026.runtime.protocol.grpc.calls import GrpcCalls
from mcp2026.runtime.protocol.http2.connection import Http2Connection
from mcp2026.runtime.protocol.listener import connection_factory, grpc_connection_factory
from tests.contract.runtime.transport_server import (
    PATIENCE,
    Calls,
    Site,
    TransportServer,
    limits,
    negotiation,
)
from tools.cluster.errors import ClusterError
from tools.cluster.go_programs import build


@pytest.fixture(scope="module")
def unix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("socket") / "http"


@pytest.fixture(scope="module")
def server(unix: Path) -> Iterator[TransportServer]:
    site, calls = Site(), Calls()
    running = TransportServer(
        lambda connections, loop: connection_factory(
            site, limits(), connections, loop, calls, negotiation("/echo")
        ),
        unix,
    )
    yield running
    running.close()


def program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is missing; apt-get install {package}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found


def curl(*arguments: str) -> bytes:
    command = [program("curl", "curl"), "--silent", "--show-error", "--noproxy", "*", *arguments]
    return subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True).stdout


@pytest.fixture(scope="session")
def h2spec() -> Path:
    try:
        return build("h2spec", lambda _line: None)
    except (ClusterError, OSError) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"h2spec cannot be built here: {error}")


def h2spec_failures(h2spec: Path, port: int, *sections: str) -> tuple[int, str]:
    """Run h2spec and return how many cases passed, and its report if some did not."""
    command = [h2spec, "--host", "127.0.0.1", "--port", str(port), "--timeout", "2", *sections]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    found = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", result.stdout)
    assert found is not None, result.stdout + result.stderr
    failed = "" if found[4] == "0" else result.stdout[result.stdout.index("Failures:") :]
    return int(found[2]), failed


def test_h2spec_finds_nothing(h2spec: Path) -> None:
    site, calls = Site(), Calls()
    server = TransportServer(
        lambda connections, loop: (
            lambda: Http2Connection(
                site, limits(), connections, loop, GrpcCalls(calls, 1 << 20, connections.room, loop)
            )
        )
    )
    try:
        passed, failures = h2spec_failures(h2spec, server.port)
    finally:
        server.close()
    assert (passed, failures) == (145, "")


def test_h2spec_finds_nothing_on_a_port_that_speaks_both_versions(h2spec: Path, server) -> None:
    # Left out is 3.5: what is no preface may be HTTP/1.1 here.
    sections = ["generic", "hpack", *(f"http2/{number}" for number in (4, 5, 6, 7, 8))]
    passed, failures = h2spec_failures(h2spec, server.port, *sections)
    assert passed >= 140
    assert failures == ""


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_both_versions_on_one_port(server, version: str) -> None:
    url = f"http://127.0.0.1:{server.port}"
    told = curl(version, f"{url}/echo", "-d", "some text", "-w", "|%{http_version} %{http_code}")
    assert told == b"some text|" + (b"1.1 200" if version == "--http1.1" else b"2 200")
    assert curl(version, f"{url}/nothing", "-o", "/dev/null", "-w", "%{http_code}") == b"404"


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_both_versions_on_a_unix_socket(server, unix: Path, version: str) -> None:
    assert curl(version, "--unix-socket", str(unix), "http://test/echo", "-d", "hello") == b"hello"


def test_an_offer_to_upgrade_is_ignored(server) -> None:
    told = curl("--http2", f"http://127.0.0.1:{server.port}/echo", "-d", "x", "-w", "|%{http_version}")
    assert told == b"x|1.1"


def test_head_has_the_length_and_no_body(server) -> None:
    url = f"http://127.0.0.1:{server.port}/large"
    lines = curl("--http2-prior-knowledge", "--head", url).decode().lower().splitlines()
    assert "content-length: 8388608" in lines


def test_large_bodies_in_both_directions(server, tmp_path: Path) -> None:
    content = os.urandom(20 << 20)
    (tmp_path / "body").write_bytes(content)
    url = f"http://127.0.0.1:{server.port}"
    digest = curl("--http2-prior-knowledge", f"{url}/digest", "--data-binary", f"@{tmp_path / 'body'}")
    assert digest.decode() == hashlib.sha256(content).hexdigest()
    assert curl("--http2-prior-knowledge", f"{url}/large") == bytes(range(256)) * (8 << 12)


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(server, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.port}/echo"
    told = curl("--http2-prior-knowledge", url, "-d", "x", "-H", "Expect: 100-continue", "-D", "-")
    assert told.startswith(b"HTTP/2 100 \r\n\r\nHTTP/2 200 \r\n")


def test_a_body_that_is_too_large_is_refused(server, tmp_path: Path) -> None:
    site = Site()
    small = TransportServer(
        lambda connections, loop: connection_factory(site, limits(max_body_bytes=100_000), connections, loop)
    )
    (tmp_path / "body").write_bytes(bytes(5 << 20))
    url = f"http://127.0.0.1:{small.port}/digest"
    known = ["-H", "Content-Type: a/b", "--data-binary", f"@{tmp_path / 'body'}"]
    unknown = ["-X", "POST", "-T", "-"]
    try:
        assert curl("--http2-prior-knowledge", url, *known, "-w", "|%{http_code}").endswith(b"|413")
        command = [program("curl", "curl"), "-s", "--noproxy", "*", "--http2-prior-knowledge", url, *unknown]
        told = subprocess.run(
            [*command, "-w", "|%{http_code}"],
            input=bytes(5 << 20),
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert told.stdout.endswith(b"|413")
    finally:
        small.close()


def test_many_requests_at_a_time_with_nghttp(server, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"x" * 100_000)
    command = [program("nghttp", "nghttp2-client"), "--null-out", "--stat", "--multiply=200"]
    command += ["--data", str(tmp_path / "body"), "--window-bits=14", "--padding=16", "--hexdump"]
    command.remove("--hexdump")
    url = f"http://127.0.0.1:{server.port}/echo"
    told = subprocess.run(
        [*command, url], capture_output=True, text=True, timeout=PATIENCE, check=True
    ).stdout
    answers = [line.split() for line in told.splitlines() if line.endswith("/echo")]
    assert len(answers) == 200
    assert {line[4] for line in answers} == {"200"}


def test_a_client_that_wants_no_header_table(server) -> None:
    command = [program("nghttp", "nghttp2-client"), "--null-out", "--stat", "--multiply=3"]
    command += ["--header-table-size=0", "--encoder-header-table-size=0"]
    url = f"http://127.0.0.1:{server.port}/echo"
    told = subprocess.run(
        [*command, url], capture_output=True, text=True, timeout=PATIENCE, check=True
    ).stdout
    assert len([line for line in told.splitlines() if line.endswith("/echo")]) == 3


def test_a_port_for_grpc_says_so_to_others() -> None:
    calls = Calls()
    server = TransportServer(
        lambda connections, loop: grpc_connection_factory(calls, limits(), connections, loop)
    )
    url = f"http://127.0.0.1:{server.port}/t.S/Echo"
    try:
        for version in ("--http1.1", "--http2-prior-knowledge"):
            told = curl(version, url, "-d", "{}", "-w", "|%{http_code}")
            assert told.endswith(b"|415")
            assert b"gRPC" in told
        wrong = curl(
            "--http2-prior-knowledge", url, "-H", "content-type: application/grpc", "-w", "%{http_code}"
        )
        assert wrong == b"405"
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as client:
            client.sendall(b"nonsense\r\n\r\n")
            assert client.recv(1_000).startswith(b"HTTP/1.1 400 ")
    finally:
        server.close()


def test_connections_have_no_delay(server) -> None:
    options: list[int] = []

    def look() -> None:
        for connection in server.connections._open:
            transport = connection._transport
            options.append(
                transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            )

    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as client:
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert client.recv(1_000)
        server.call(look)
    assert options
    assert all(options)
