"""What a user may give as a place, and what is refused with the reason."""

from pathlib import Path

import pytest

from mcp2026.api.errors import SettingsError
from mcp2026.runtime.dataset.stores.locations import (
    FilePlace,
    Place,
    S3Place,
    Surroundings,
    WebPlace,
    parse_place,
    parse_target,
)

HERE = Surroundings(Path("/mnt/models"), {"scratch": Path("/data")})


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("/a/b.npy", FilePlace(Path("/a/b.npy"), "/a/b.npy")),
        ("file:///a/b%20c.npy", FilePlace(Path("/a/b c.npy"), "file:///a/b%20c.npy")),
        ("pvc://claim/x/y.npz", FilePlace(Path("/mnt/models/claim/x/y.npz"), "pvc://claim/x/y.npz")),
        ("pvc://scratch/y.npz", FilePlace(Path("/data/y.npz"), "pvc://scratch/y.npz")),
        ("s3://bucket/a/b.jsonl", S3Place("bucket", "a/b.jsonl")),
        ("https://host:8443/a/b.parquet?sig=1", WebPlace("https://host:8443/a/b.parquet?sig=1")),
    ],
)
def test_a_place_is_read(text: str, place: Place) -> None:
    assert parse_place("--input", text, HERE) == place


def test_a_path_is_taken_from_the_working_directory() -> None:
    place = parse_place("--input", "b.npy", HERE)
    assert isinstance(place, FilePlace)
    assert place.path == Path.cwd() / "b.npy"


def test_a_signed_url_is_shown_without_its_signature() -> None:
    place = parse_place("--input", "https://host:8443/a/b.parquet?sig=secret", HERE)
    assert (place.shown, place.name) == ("https://host:8443/a/b.parquet", "b.parquet")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "names no file"),
        ("folder/", "names no file"),
        ("file://other/a.npy", "names a host"),
        ("pvc://claim", "is not allowed"),
        ("pvc://claim/../other/a.npy", "is not allowed"),
        ("pvc://claim/a b.npy", "is not allowed"),
        ("s3://bucket", "names no object"),
        ("s3://Bucket/a.npy", "names no object"),
        ("s3://bucket/folder/", "names no object"),
        ("https://host", "no host or no file"),
        ("https://user:word@host/a.npy", "a user or a password"),
        ("https://host:port/a.npy", "is no URL"),
        ("http://host/a.npy", "--allow-http"),
        ("gs://bucket/a.npy", "gs:// is not known"),
    ],
)
def test_what_is_no_place_is_refused(text: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem) as refused:
        parse_place("--input", text, HERE)
    assert str(refused.value).startswith("--input: ")


def test_http_is_taken_when_it_is_asked_for() -> None:
    asked = Surroundings(HERE.models_directory, {}, allow_http=True)
    assert parse_place("--input", "http://host/a.npy", asked) == WebPlace("http://host/a.npy")


def test_nothing_is_written_over_https() -> None:
    with pytest.raises(SettingsError, match="cannot be written"):
        parse_target("--output", "https://host/a.npy", HERE)
