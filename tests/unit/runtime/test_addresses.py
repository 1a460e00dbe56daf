"""What a server listens on: taken whole or not at all, and given back at the end."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from mcp2026.runtime.errors import AddressTakenError, ListenError
from mcp2026.runtime.process import addresses as addresses_module
from mcp2026.runtime.process.addresses import Addresses, UnixSocket, take_addresses
from mcp2026.runtime.settings import Settings


def settings(**values: Any) -> Settings:
    return Settings(host="127.0.0.1", port=0, **values)


def test_every_worker_gets_every_address(tmp_path: Path) -> None:
    http, grpc = tmp_path / "http.sock", tmp_path / "grpc.sock"
    addresses = Addresses(settings(unix_socket=str(http), grpc_unix_socket=str(grpc)))
    for _ in range(2):
        listeners = addresses.listeners()
        assert [one.family for one in listeners.http] == [socket.AF_INET, socket.AF_UNIX]
        assert [one.family for one in listeners.grpc] == [socket.AF_INET, socket.AF_UNIX]
        for one in listeners.all:
            one.close()
    assert sorted(addresses.urls()) == ["grpc_unix_url", "grpc_url", "unix_url", "url"]
    addresses.close()
    assert not http.exists()
    assert not grpc.exists()


def test_without_grpc_there_is_no_second_port() -> None:
    addresses = Addresses(settings(grpc=False))
    assert list(addresses.urls()) == ["url"]
    listeners = addresses.listeners()
    assert listeners.grpc == []
    listeners.http[0].close()
    addresses.close()


def test_a_path_that_a_killed_server_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    killed = socket.socket(socket.AF_UNIX)
    killed.bind(str(path))
    killed.close()
    UnixSocket(path, "--unix-socket").close()


def test_a_path_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(ListenError, match="another server does"):
            UnixSocket(path, "--unix-socket")
        assert path.exists()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda folder: folder / ("x" * 120), "107 bytes", id="too long"),
        pytest.param(lambda folder: folder / "missing" / "s", "No such file", id="no folder"),
        pytest.param(lambda folder: folder, "another kind", id="a folder"),
    ],
)
def test_a_path_that_cannot_be_bound_is_refused_by_its_flag(tmp_path: Path, make, words: str) -> None:
    with pytest.raises(ListenError, match=words) as error:
        UnixSocket(make(tmp_path), "--grpc-unix-socket")
    assert "--grpc-unix-socket" in str(error.value)


def test_if_one_address_cannot_be_had_none_is_kept(tmp_path: Path) -> None:
    http = tmp_path / "http.sock"
    with pytest.raises(ListenError):
        Addresses(settings(unix_socket=str(http), grpc_unix_socket=str(tmp_path)))
    assert not http.exists()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ListenError, match="--grpc-port"):
            Addresses(settings(grpc_port=taken.getsockname()[1]))


def test_a_copy_for_a_new_worker_lets_no_other_block(tmp_path: Path) -> None:
    shared = UnixSocket(tmp_path / "http.sock", "--unix-socket")
    first = shared.listener()
    with first, shared.listener():  # all are one open file, with one mode
        assert not os.get_blocking(first.fileno())
    shared.close()


@pytest.mark.parametrize("kind", ["port", "path"])
async def test_what_a_killed_server_left_in_use_is_waited_for(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    path = tmp_path / "http.sock"
    with socket.socket(socket.AF_INET if kind == "port" else socket.AF_UNIX) as left:
        left.bind(("127.0.0.1", 0) if kind == "port" else str(path))
        left.listen()
        port = left.getsockname()[1] if kind == "port" else 0
        wanted = Settings(host="127.0.0.1", port=port, grpc=False, unix_socket=str(path))
        taking = asyncio.create_task(take_addresses(wanted))
        await asyncio.sleep(0)
        assert not taking.done()
        (told,) = caplog.messages  # at once, and not at each look
        assert "waiting for it" in told
        assert (str(port) if kind == "port" else str(path)) in told
    taken = await taking
    assert caplog.messages == [told]
    assert port in (0, taken.http.port)
    taken.close()


async def test_what_stays_in_use_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses_module, "LEFT_BEHIND_SECONDS", 0.0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(AddressTakenError, match="is in use"):
            await take_addresses(Settings(host="127.0.0.1", port=other.getsockname()[1], grpc=False))
