"""A server whose versions lie elsewhere: fetched beside the traffic; what is wrong is named meanwhile."""

import hashlib
import json
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
from moto.server import ThreadedMotoServer

from tests.contract.runtime.server_process import Server, run_server
from tests.contract.runtime.test_batch_https import Site

X = np.zeros((1, 16), np.float32)
Model = Callable[[str], Path]


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Configured:
    """A configuration file, and a server that follows it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.path = folder / "serving.json"
        self.cache = folder / "cache"
        self._stack = stack

    def write(self, revision: int, *versions: tuple[str, str, str], **fields: Any) -> None:
        """Write a revision of (version id, path, sha256)."""
        shares = [100, *[0] * (len(versions) - 1)]
        listed = [
            {"versionId": version_id, "path": path, "sha256": digest, "weight": weight}
            for (version_id, path, digest), weight in zip(versions, shares, strict=True)
        ]
        document = {"model": "model", "revision": revision, "versions": listed, **fields}
        (self.folder / "new").write_text(json.dumps(document))
        (self.folder / "new").rename(self.path)

    def arguments(self) -> tuple[str, ...]:
        return (
            *("--serving-config", str(self.path), "--threads", "1", "--model-cache", str(self.cache)),
            *("--fetch-stall-seconds", "0.3", "--allow-http"),
        )

    def serve(self, *arguments: str, environment: dict[str, str] | None = None) -> Server:
        server = Server(*self.arguments(), *arguments, environment=environment)
        self._stack.callback(server.close)
        return server


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[Configured]:
    with ExitStack() as stack:
        yield Configured(tmp_path, stack)


@pytest.fixture
def site(tmp_path: Path, model: Model) -> Iterator[Site]:
    site = Site(tmp_path)
    for name in ("add", "add-hundred"):
        site.files[f"/{name}"] = model(name).read_bytes()
    yield site
    site.server.shutdown()
    site.server.server_close()


def version(site: Site, version_id: str, name: str) -> tuple[str, str, str]:
    """Return a version of the site for a configuration."""
    return version_id, f"{site.url}/{name}", sha256(site.files[f"/{name}"])


def trust(site: Site) -> dict[str, str]:
    return {"SSL_CERT_FILE": str(site.authority)}


def said(server: Server, words: str, after: int = 0) -> str:
    return str(server.wait_for_log(lambda line: words in line["message"], after)["message"])


def added(server: Server) -> float:
    return float(server.infer(X).array()[0, 0])


def test_versions_of_a_site_are_served_by_all_workers_and_fetched_once(
    configured: Configured, site: Site
) -> None:
    configured.write(1, version(site, "v1", "add"))
    server = configured.serve("--workers", "2", environment=trust(site))
    assert added(server) == 1
    assert len(site.ranges) == 1
    site.cuts = [200]
    configured.write(2, version(site, "v2", "add-hundred"), version(site, "v1", "add"))
    said(server, "revision 2 of model is live")
    assert {added(server) for _ in range(12)} == {100}
    assert server.stop() == 0
    # What was fetched is there for the next server, though the source is gone.
    site.files.clear()
    assert added(configured.serve(environment=trust(site))) == 100


def test_a_server_whose_cache_is_damaged_starts_with_what_it_fetches_again(
    configured: Configured, site: Site
) -> None:
    configured.write(1, version(site, "v1", "add"))
    assert configured.serve(environment=trust(site)).stop() == 0
    os.truncate(configured.cache / version(site, "v1", "add")[2], 100)
    server = configured.serve(environment=trust(site))
    assert added(server) == 1
    assert "is removed, and fetched anew" in said(server, "in the model cache is damaged")
    assert len(site.ranges) == 2


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param("none", "the server answers 404", id="not there"),
        pytest.param("swapped", "its sha256 is", id="swapped"),
        pytest.param("truncated", "its sha256 is", id="cut short at the source"),
        pytest.param("breaks", "Tried 5 times in a row", id="always breaks off"),
        pytest.param("disk", "is full after 0 bytes", id="disk full"),
    ],
)
def test_what_cannot_be_fetched_is_named_and_the_rest_serves(
    configured: Configured, site: Site, fault: str, words: str
) -> None:
    configured.write(1, version(site, "v1", "add"))
    server = configured.serve(environment=trust(site))
    wanted = version(site, "v2", "add-hundred")
    good = site.files["/add-hundred"]
    if fault == "disk":
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    elif fault == "breaks":
        site.cuts = [0] * 5
    elif fault == "none":
        del site.files["/add-hundred"]
    else:
        site.files["/add-hundred"] = good[:-1] if fault == "truncated" else good[:-1] + b"!"
    configured.write(2, wanted, version(site, "v1", "add"))
    told = said(server, "a revision cannot be served, 1 stays live")
    assert words in told
    assert added(server) == 1
    if fault == "disk":
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (-1, -1))
    site.files["/add-hundred"] = good
    said(server, "revision 2 of model is live")  # it is tried again by itself
    assert added(server) == 100


def test_a_newer_revision_does_not_wait_for_a_source_that_says_nothing(
    configured: Configured, site: Site
) -> None:
    configured.write(1, version(site, "v1", "add"))
    server = configured.serve("--fetch-stall-seconds", "60", environment=trust(site))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"http://127.0.0.1:{silent.getsockname()[1]}/model"
        configured.write(2, ("v2", place, "0" * 64))
        connection, _ = silent.accept()
        with connection:
            configured.write(3, version(site, "v3", "add-hundred"))
            said(server, "revision 3 of model is live")
    assert added(server) == 100


def test_a_start_whose_model_cannot_be_had_ends_in_one_sentence(configured: Configured, site: Site) -> None:
    configured.write(1, ("v1", f"{site.url}/add", "0" * 64))
    ended = run_server(*configured.arguments(), "--port", "0", environment=trust(site))
    assert ended.returncode == 1
    assert "its sha256 is" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_signal_ends_a_start_that_waits_for_its_model(configured: Configured) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        configured.write(1, ("v1", f"http://127.0.0.1:{silent.getsockname()[1]}/model", "0" * 64))
        server = Server(*configured.arguments(), "--fetch-stall-seconds", "60", wait=False)
        connection, _ = silent.accept()
        with connection:
            assert server.stop(signal.SIGTERM) == 0
        server.close()


def test_servers_of_one_machine_fetch_once(configured: Configured, site: Site) -> None:
    configured.write(1, version(site, "v1", "add"))
    starting = [
        threading.Thread(target=lambda: added(configured.serve(environment=trust(site)))) for _ in range(2)
    ]
    for one in starting:
        one.start()
    for one in starting:
        one.join()
    assert len(site.ranges) == 1


@pytest.fixture
def bucket() -> Iterator[tuple[Any, dict[str, str]]]:
    """A bucket `models`, and the environment of who may read it."""
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    _, port = moto.get_host_and_port()
    environment = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }
    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="models")
    yield client, environment
    moto.stop()


def test_versions_come_from_a_bucket(
    configured: Configured, model: Model, bucket: tuple[Any, dict[str, str]]
) -> None:
    client, environment = bucket
    add, hundred = model("add").read_bytes(), model("add-hundred").read_bytes()
    client.put_object(Bucket="models", Key="a/add.onnx", Body=add)
    configured.write(1, ("v1", "s3://models/a/add.onnx", sha256(add)))
    server = configured.serve(environment=environment)
    assert added(server) == 1
    configured.write(2, ("v2", "s3://models/hundred.onnx", sha256(hundred)))
    assert "there is no such object" in said(server, "a revision cannot be served, 1 stays live")
    client.put_object(Bucket="models", Key="hundred.onnx", Body=hundred)
    said(server, "revision 2 of model is live")
    assert added(server) == 100


def test_an_object_is_gone_on_with_only_if_it_is_the_same(
    configured: Configured, model: Model, bucket: tuple[Any, dict[str, str]]
) -> None:
    """What an earlier server left: the beginning of the object, or of one that was replaced since."""
    client, environment = bucket
    content = model("add").read_bytes()
    digest = sha256(content)
    put = client.put_object(Bucket="models", Key="add.onnx", Body=content)
    for tag, beginning in ((put["ETag"], content[:100]), ('"other"', b"x" * 100)):
        for file in configured.cache.glob("*"):
            file.unlink()
        configured.cache.mkdir(exist_ok=True)
        (configured.cache / f"{digest}.part").write_bytes(beginning)
        (configured.cache / f"{digest}.state").write_text(tag)
        configured.write(1, ("v1", "s3://models/add.onnx", digest))
        server = configured.serve(environment=environment)
        assert added(server) == 1
        changed = any("has changed; it is fetched anew" in line["message"] for line in server.log)
        assert changed == (tag == '"other"')
        assert any("100 bytes are here already" in line["message"] for line in server.log)
        assert server.stop() == 0


def test_a_bucket_without_credentials_says_which_variables_are_needed(configured: Configured) -> None:
    configured.write(1, ("v1", "s3://models/add.onnx", "0" * 64))
    nowhere = "http://127.0.0.1:1"
    environment = {"AWS_ENDPOINT_URL": nowhere, "AWS_METADATA_ENDPOINT": nowhere, "AWS_REGION": "us-east-1"}
    ended = run_server(*configured.arguments(), "--port", "0", environment=environment)
    assert ended.returncode == 1
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set" in ended.stderr


def test_a_bucket_that_says_nothing_is_named(configured: Configured, model: Model) -> None:
    content = model("add").read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        configured.write(1, ("v1", "s3://models/add.onnx", sha256(content)))
        ended = run_server(
            *configured.arguments(),
            *("--port", "0"),
            environment={
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            },
        )
    assert ended.returncode == 1
    assert "nothing came for 0.3 s" in ended.stderr
