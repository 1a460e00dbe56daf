"""A server with a model of every datatype, and clients of both styles."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.client.both_clients import PROTOCOLS, STYLES, Connect, connected
from tests.contract.runtime.open_inference_server import ONNX_TYPES, echo_model, serve, sums_model
from tests.contract.runtime.server_process import Server


class Echoes:
    """The server and its addresses."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def url(self, protocol: str, *, unix: bool = False) -> str:
        if unix:
            scheme = {"http": "unix", "h2": "h2+unix", "grpc": "grpc+unix"}[protocol]
            return f"{scheme}://{self.folder}/{'grpc' if protocol == 'grpc' else 'http'}.sock"
        port = self.server.grpc_port if protocol == "grpc" else self.server.port
        return f"{protocol}://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def echoes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Echoes]:
    folder = tmp_path_factory.mktemp("echoes")
    names = [f"echo_{datatype.lower()}" for datatype in ONNX_TYPES]
    for name, datatype in zip(names, ONNX_TYPES, strict=True):
        echo_model(folder, name, datatype, None, 3)
    sums_model(folder, "sums")
    echo_model(folder, "wide", "FP32", None, None)
    sockets = ("--unix-socket", f"{folder}/http.sock", "--grpc-unix-socket", f"{folder}/grpc.sock")
    server = serve(folder, [*names, "sums", "wide"], *sockets)
    yield Echoes(server, folder)
    server.close()


@pytest.fixture(params=STYLES)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    with connected(request.param) as connect_one:
        yield connect_one


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=[False, True], ids=["tcp", "unix"])
def url(request: pytest.FixtureRequest, echoes: Echoes, protocol: str) -> str:
    return echoes.url(protocol, unix=request.param)
