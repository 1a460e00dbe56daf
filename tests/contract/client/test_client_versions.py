"""Versions are registered and retired by the client, over every transport; errors name the field."""

import shutil
import uuid
from collections.abc import Iterator

import numpy as np
import pytest

from mcp2026.client import InvalidRequestError, ModelNotFoundError, RegisteredVersion, RetiredVersion
from tests.contract.client.both_clients import Connect
from tests.contract.client.conftest import Echoes
from tests.contract.runtime.server_process import Server, serving_config
from tools.models import generate

ROW = np.arange(16, dtype=np.float32).reshape(1, 16)
OWNER = "vision@example.com"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Echoes]:
    folder = tmp_path_factory.mktemp("versions")
    for name in ("add", "add-hundred"):
        shutil.copy(generate(name, folder), folder / f"{name}-served.onnx")
    config = serving_config(folder / "serving.json", [("v1", folder / "add-served.onnx", 100)])
    server = Server("--serving-config", str(config), "--model-control", "explicit", "--threads", "1")
    yield Echoes(server, folder)
    server.close()


def test_a_version_comes_and_goes(started: Echoes, protocol: str, connect: Connect) -> None:
    client = connect(started.url(protocol), batching=False)
    uri = f"file://{started.folder}/add-hundred-served.onnx"
    request_id = str(uuid.uuid4())
    wanted = {"weight": 0, "owner_email": OWNER, "request_id": request_id}
    registered = client.register_version("model", "v2", uri, **wanted)
    assert isinstance(registered, RegisteredVersion)
    assert registered[:4] == (request_id, "model", "v2", 0)
    assert client.register_version("model", "v2", uri, **wanted) == registered
    first, second = (client.infer({"input": ROW}, model="model", version=one) for one in ("v1", "v2"))
    assert (first.version, second.version) == ("v1", "v2")
    assert (first["output"] != second["output"]).any()
    assert client.retire_version("model", "v2") == RetiredVersion("model", "v2", registered.revision + 1)
    with pytest.raises(ModelNotFoundError):
        client.infer({"input": ROW}, model="model", version="v2")
    with pytest.raises(ModelNotFoundError):
        client.retire_version("model", "v2")


def test_what_the_contract_refuses_names_field_rule_and_range(
    started: Echoes, protocol: str, connect: Connect
) -> None:
    client = connect(started.url(protocol), batching=False)
    with pytest.raises(InvalidRequestError) as refused:
        client.register_version("model", "v2", "file:///m.onnx", weight=101, owner_email=OWNER)
    error = refused.value
    assert (error.code, error.field, error.rule) == ("invalid_argument", "weight", "maximum")
    assert error.allowed is not None
    assert "100" in error.allowed
    with pytest.raises(InvalidRequestError) as refused:
        client.register_version("model", "v2", "file:///m.onnx", weight=1, owner_email="nobody")
    assert (refused.value.field, refused.value.rule) == ("owner_email", "format")
