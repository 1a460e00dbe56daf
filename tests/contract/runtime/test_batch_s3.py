"""Data sets and results in a bucket: a server of S3 in this process, runs in others."""

import io
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
from moto.server import ThreadedMotoServer

from tests.contract.runtime.batch_process import Child, KillAtRequest, run_batch

Model = Callable[[str], Path]
BUCKET = "data"
ROWS = 50
OWN = ("--allow-http", "--lease-seconds", "0.2")
"""Short, so that what a killed run left is soon seen to be dead. No two runs are alive at once."""


class Bucket:
    """The bucket as another client sees it."""

    def __init__(self, port: int) -> None:
        self.environment = {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        }
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        )
        self._client.create_bucket(Bucket=BUCKET)

    def put(self, key: str, content: bytes) -> None:
        self._client.put_object(Bucket=BUCKET, Key=key, Body=content)

    def get(self, key: str) -> bytes:
        content: bytes = self._client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return content

    def keys_below(self, prefix: str) -> list[str]:
        listed = self._client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return sorted(item["Key"] for item in listed.get("Contents", []))


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    bucket = Bucket(port)
    content = io.BytesIO()
    np.save(content, np.random.default_rng(1).standard_normal((ROWS, 64)).astype(np.float32))
    bucket.put("in.npy", content.getvalue())
    yield bucket
    server.stop()


def arguments(model: Model, key: str) -> tuple[str, ...]:
    return (
        *("--model-path", str(model("mlp")), "--input", f"s3://{BUCKET}/in.npy"),
        *("--output", f"s3://{BUCKET}/{key}", "--rows-per-part", "30", *OWN),
    )


def parts(bucket: Bucket, key: str) -> int:
    """Return the rows in parts that are there."""
    names = [name.rpartition("/")[2] for name in bucket.keys_below(f"{key}.parts/")]
    return sum(int(name.split("-")[1]) for name in names if name[0].isdigit())


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_request_leaves_what_the_next_run_finishes(
    model: Model, tmp_path: Path, bucket: Bucket, after: bool
) -> None:
    reference = f"{after}/reference.npy"
    whole = run_batch(tmp_path, *arguments(model, reference), environment=bucket.environment)
    assert whole.code == 0, whole.log
    assert bucket.keys_below(reference) == [reference, f"{reference}.result.json"]
    # Each second request is enough: with and without the one before are neighbours.
    for number in range(1 + after, 60, 2):
        key = f"{after}/{number}/out.npy"
        fault = KillAtRequest(number, after)
        killed = run_batch(tmp_path, *arguments(model, key), environment=bucket.environment, fault=fault)
        if killed.code == 0:
            break
        assert killed.code == -signal.SIGKILL, killed.log
        finished = f"{key}.result.json" in bucket.keys_below(key)
        done = ROWS if finished else parts(bucket, key)
        again = run_batch(tmp_path, *arguments(model, key), environment=bucket.environment)
        assert again.code == 0, (number, again.log)
        assert bucket.get(key) == bucket.get(reference), number
        assert bucket.keys_below(key) == [key, f"{key}.result.json"]
        assert (again.termination["rows"], again.termination["rows_resumed"]) == (ROWS, done), number
    else:
        raise AssertionError("it never ended")


def test_a_living_run_keeps_its_output_to_itself(model: Model, tmp_path: Path, bucket: Bucket) -> None:
    content = io.BytesIO()
    np.save(content, np.ones((400, 16), np.float32))
    bucket.put("slow.npy", content.getvalue())
    asked = (
        *("--model-path", str(model("slow")), "--input", f"s3://{BUCKET}/slow.npy"),
        *("--output", f"s3://{BUCKET}/shared.npy", "--rows-per-part", "4", "--max-batch-size", "4"),
        *("--allow-http", "--lease-seconds", "4"),
    )
    first = Child(tmp_path, *asked, environment=bucket.environment)
    first.wait_for(lambda _: parts(bucket, "shared.npy") > 0)
    other = tmp_path / "other"
    other.mkdir()
    second = run_batch(other, *asked, environment=bucket.environment)
    assert second.code == 2, second.log
    assert "another run writes it" in second.termination["message"]
    first.process.terminate()
    stopped = first.end()
    assert stopped.code == 128 + signal.SIGTERM
    assert stopped.termination["rows"] == parts(bucket, "shared.npy")
    assert "shared.npy.parts/lock" not in bucket.keys_below("shared.npy")


def test_text_and_logs_go_there_too(model: Model, tmp_path: Path, bucket: Bucket) -> None:
    bucket.put("in.jsonl", b"".join(b'{"id": %d, "input": [%d, 0, 0, 0]}\n' % (n, n) for n in range(5)))
    done = run_batch(
        tmp_path,
        *("--model-path", str(model("integers")), "--input", f"s3://{BUCKET}/in.jsonl"),
        *("--output", f"s3://{BUCKET}/text.jsonl", "--log-file", str(tmp_path / "batch.log")),
        *("--archive", f"s3://{BUCKET}/logs/batch.log.gz", *OWN),
        environment=bucket.environment,
    )
    assert done.code == 0, done.log
    rows = [json.loads(line) for line in bucket.get("text.jsonl").splitlines()]
    assert rows == [{"id": n, "output": [2 * n, 0, 0, 0]} for n in range(5)]
    assert bucket.get("logs/batch.log.gz")[:2] == b"\x1f\x8b"
    assert len(done.termination["archive_sha256"]) == 64


@pytest.mark.parametrize(
    ("flags", "environment", "code", "message"),
    [
        (("--input", "s3://data/none.npy"), {}, 3, "s3://data/none.npy: there is no such object"),
        (("--input", "s3://nobucket/in.npy"), {}, 3, "s3://nobucket/in.npy: there is no such object"),
        (("--output", "s3://nobucket/out.npy"), {}, 1, "Check bucket, endpoint and network"),
        (("--no-allow-http",), {}, 2, "AWS_ENDPOINT_URL: http:// protects nothing on the way"),
        ((), {"AWS_CA_BUNDLE": "/nowhere"}, 1, "AWS_CA_BUNDLE: /nowhere: No such file"),
    ],
)
def test_what_is_wrong_is_named(
    model: Model,
    tmp_path: Path,
    bucket: Bucket,
    flags: tuple[str, ...],
    environment: dict[str, str],
    code: int,
    message: str,
) -> None:
    told = run_batch(
        tmp_path, *arguments(model, "wrong.npy"), *flags, environment=bucket.environment | environment
    )
    assert told.code == code, told.log
    assert message in told.termination["message"]
