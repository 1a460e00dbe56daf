"""The log of a stopped server, put into a bucket: whole, with its digest, whatever kills it on the way."""

import gzip
import hashlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.contract.runtime.kill_points import ARCHIVE, Tokens
from tests.contract.runtime.server_process import PATIENCE, Server
from tests.contract.runtime.test_stopped_servers import Pod
from tests.swallowing_relay import SwallowingRelay

ARCHIVE_PLACE = "s3://logs/stopped"
KEY = "stopped/pod-a.log.gz"


class Bucket:
    """The bucket `logs`, and the way to it that the server takes."""

    def __init__(self, port: int) -> None:
        self.relay = SwallowingRelay(("127.0.0.1", port))
        self.environment = {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.relay.port}",
        }
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        )
        self._client.create_bucket(Bucket="logs")

    def clear(self) -> None:
        for key in self.listed():
            self._client.delete_object(Bucket="logs", Key=key)

    def listed(self) -> list[str]:
        return sorted(item["Key"] for item in self._client.list_objects_v2(Bucket="logs").get("Contents", []))

    def archive(self) -> bytes:
        content: bytes = self._client.get_object(Bucket="logs", Key=KEY)["Body"].read()
        return content


@pytest.fixture(scope="module")
def store() -> Iterator[int]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture
def bucket(store: int) -> Iterator[Bucket]:
    bucket = Bucket(store)
    bucket.clear()
    yield bucket
    bucket.relay.close()


@pytest.fixture
def pod(model: Callable[[str], Path], tmp_path: Path) -> Iterator[Pod]:
    pod = Pod(tmp_path, model("add"))
    yield pod
    pod.end()


def stopped(pod: Pod, bucket: Bucket, **environment: str) -> Server:
    """Return a server whose model is stopped, and that puts its log into the bucket."""
    server = pod.serve("--allow-http", archive=ARCHIVE_PLACE, environment=bucket.environment | environment)
    pod.configure(2, stopped=True)
    return server


def followed_by(pod: Pod, bucket: Bucket) -> Server:
    """Return the server that is started in the place of one that was killed."""
    return pod.start("--allow-http", archive=ARCHIVE_PLACE, environment=bucket.environment)


def check_archive(pod: Pod, bucket: Bucket) -> None:
    content = bucket.archive()
    assert bucket.listed() == [KEY]
    said = pod.report()
    assert (said["archive"], said["archive_error"]) == (f"s3://logs/{KEY}", None)
    assert said["archive_sha256"] == hashlib.sha256(content).hexdigest()
    assert b"revision 2 says that the model is stopped" in gzip.decompress(content)


def test_the_log_is_put_into_the_bucket_and_nothing_is_left_behind(pod: Pod, bucket: Bucket) -> None:
    assert stopped(pod, bucket).wait() == 0
    check_archive(pod, bucket)
    assert {path.name for path in (pod.folder / "ending").iterdir()} == {"ending.json", "server.log"}


@pytest.mark.parametrize("step", ARCHIVE)
def test_a_server_that_is_killed_on_the_way_is_followed_by_one_that_archives(
    pod: Pod, bucket: Bucket, tmp_path: Path, step: str
) -> None:
    tokens = Tokens(tmp_path / "kill points")
    tokens.arm(step)
    assert stopped(pod, bucket, **tokens.environment()).wait() == -signal.SIGKILL
    assert not tokens.left()
    code = 1 if step == "when it has drained" else 0  # nothing says yet that it has
    assert followed_by(pod, bucket).wait() == code
    assert pod.report()["exit_code"] == code
    check_archive(pod, bucket)


def test_a_server_that_is_killed_while_it_sends_is_followed_by_one_that_archives(
    pod: Pod, bucket: Bucket
) -> None:
    bucket.relay.swallow()
    server = stopped(pod, bucket)
    assert bucket.relay.swallowed.wait(PATIENCE)
    server.process.send_signal(signal.SIGKILL)
    server.wait()
    assert bucket.listed() == []
    bucket.relay.pass_on()
    assert followed_by(pod, bucket).wait() == 0
    check_archive(pod, bucket)


def test_without_leave_for_http_the_report_says_which_flag_is_needed(pod: Pod, bucket: Bucket) -> None:
    server = pod.serve(archive=ARCHIVE_PLACE, environment=bucket.environment)
    pod.configure(2, stopped=True)
    assert server.wait() == 4
    assert "--allow-http" in pod.report()["archive_error"]
