"""A version has run before it serves: its first request finds what later ones find; what fails is refused."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contract.runtime.server_process import Server

X = np.zeros((3, 16), np.float32)
Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a configuration with one version, by another file that is renamed."""

    def made(revision: int, version_id: str, path: Path, **fields: Any) -> None:
        versions = [{"versionId": version_id, "path": str(path), "weight": 100}]
        document = {"model": "model", "versions": versions, "revision": revision, **fields}
        (tmp_path / "new").write_text(json.dumps(document))
        (tmp_path / "new").rename(tmp_path / "serving.json")

    return made


@pytest.fixture
def server(tmp_path: Path, write: Write, model: Callable[[str], Path]) -> Iterator[Server]:
    write(1, "v1", model("add"))
    server = Server("--serving-config", str(tmp_path / "serving.json"), "--threads", "1")
    yield server
    server.close()


def said(server: Server, words: str) -> str:
    return str(server.wait_for_log(lambda line: words in line["message"])["message"])


def test_no_request_waits_for_what_the_warm_up_has_done(
    server: Server, write: Write, model: Callable[[str], Path]
) -> None:
    def buffers(version: str, result: str) -> float:
        return server.metric("mcp2026_tensor_cache_total", version=version, result=result)

    for revision, version in enumerate(("v1", "v2"), 1):
        for requests in (1, 2):
            assert server.infer(X).json["version_id"] == version
            server.wait_until(lambda n=requests, v=version: buffers(v, "hit") == n, "it is counted")
            assert buffers(version, "miss") == 0
        if revision == 1:
            write(2, "v2", model("add-hundred"))
            said(server, "revision 2 of model is live")


def test_a_version_that_fails_its_warm_up_is_refused_and_the_other_serves(
    server: Server, write: Write, model: Callable[[str], Path]
) -> None:
    sample = {"name": "wide", "inputs": {"input": {"shape": [17]}}, "rows": 1}
    write(2, "v2", model("add-hundred"), execution={"warmUp": [sample]})
    assert "the warm-up sample 'wide'" in said(server, "a revision cannot be served, 1 stays live")
    assert server.infer(X).json["version_id"] == "v1"
    write(
        3,
        "v2",
        model("add-hundred"),
        execution={"warmUp": [{**sample, "inputs": {"input": {"shape": [16]}}}]},
    )
    said(server, "revision 3 of model is live")
