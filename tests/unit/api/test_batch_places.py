"""Where a data set may come from, and where results and logs may go: what `spec.batch` takes and refuses."""

from typing import Any

import msgspec
import pytest

from mcp2026.api.batch_run import Batch
from mcp2026.runtime.dataset.settings import read_settings

GOOD = {"input": "pvc://data/rows.npy", "output": "pvc://data/results.npy"}
INPUTS = [
    ("pvc://data/a/b/rows.npy", True),
    ("pvc://data.set-1/rows_1@2+3=4.jsonl", True),
    ("s3://bucket/rows.parquet", True),
    ("s3://my.bucket-1/a/b c.npz", False),
    ("s3://my.bucket-1/a/b%20c.npz", True),
    ("https://data.example/rows.npy", True),
    ("https://data.example:8443/a/rows.npy?X-Signature=abc/def%2F", True),
    ("https://user:secret@data.example/rows.npy", False),
    ("https://data.example/rows.npy#part", False),
    ("https://data.example", False),
    ("http://data.example/rows.npy", False),
    ("file:///data/rows.npy", False),
    ("/data/rows.npy", False),
    ("pvc://Data/rows.npy", False),
    ("pvc://data/", False),
    ("pvc://data/rows", False),
    ("pvc://data/rows.NPY", False),
    ("pvc://data//rows.npy", False),
    ("s3://b/rows.npy", False),
    ("s3://bucket//rows.npy", False),
    ("s3://bucket/rows.npy?versionId=1", False),
    ("", False),
]


@pytest.mark.parametrize(("place", "good"), INPUTS, ids=[place or "nothing" for place, _ in INPUTS])
def test_an_input_is_taken_or_refused(place: str, good: bool) -> None:
    if not good:
        with pytest.raises(msgspec.ValidationError, match=r"\$.input"):
            msgspec.convert({**GOOD, "input": place}, Batch)
        return
    assert msgspec.convert({**GOOD, "input": place}, Batch).input == place
    flags = ["--model-path", "m.onnx", "--input", place, "--output", GOOD["output"]]
    assert read_settings(flags, {}).input_format in place, "the program takes what admission takes"


@pytest.mark.parametrize("place", ["https://data.example/a.npy", "s3://bucket/a.csv", "pvc://data"])
def test_results_go_to_claims_and_buckets_alone(place: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$.output"):
        msgspec.convert({**GOOD, "output": place}, Batch)


@pytest.mark.parametrize(
    ("given", "place"),
    [({}, "pvc://data/results.npy.log.gz"), ({"archive": "s3://logs/run.gz"}, "s3://logs/run.gz")],
)
def test_the_log_has_a_place_always(given: dict[str, Any], place: str) -> None:
    assert msgspec.convert({**GOOD, **given}, Batch).archive_place == place
