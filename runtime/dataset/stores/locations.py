"""What a user may give as a place, and what it means: a path, a claim, an object of S3, a URL. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from mcp2026.api.errors import SettingsError
from mcp2026.api.inference_model import claim_and_path
from mcp2026.api.sources import CLAIM_PATTERN

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
READABLE: Final = "a path, file://, pvc://<claim>/<path>, s3://<bucket>/<key> or https://"
WRITABLE: Final = "a path, file://, pvc://<claim>/<path> or s3://<bucket>/<key>"


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A file of this machine, or on a claim that is mounted here."""

    path: Path
    shown: str

    @property
    def name(self) -> str:
        """What ends in the suffix."""
        return self.path.name


@dataclass(frozen=True, slots=True)
class S3Place:
    """An object of S3, or of what speaks its protocol."""

    bucket: str
    key: str

    @property
    def shown(self) -> str:
        """The place in messages."""
        return f"s3://{self.bucket}/{self.key}"

    @property
    def name(self) -> str:
        """What ends in the suffix."""
        return self.key


@dataclass(frozen=True, slots=True)
class WebPlace:
    """What an https (or http) URL gives."""

    url: str

    @property
    def shown(self) -> str:
        """The place in messages, without what may be secret in it: the query of a signed URL, a password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"

    @property
    def name(self) -> str:
        """What ends in the suffix."""
        return PurePosixPath(urlsplit(self.url).path).name


Place = FilePlace | S3Place | WebPlace


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a place's meaning depends on."""

    models_directory: Path
    """Claims are folders in it, unless `claims` has them elsewhere."""
    claims: Mapping[str, Path]
    allow_http: bool = False


def parse_place(setting: str, text: str, surroundings: Surroundings) -> Place:
    """Return the place that can be read under `text`; `setting` is what an error names.

    Raises:
        SettingsError: it is none.

    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _file(setting, text, text)
    if scheme == "file":
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise SettingsError(setting, f"{text!r} names a host", "file:///path")
        return _file(setting, unquote(parts.path), text)
    if scheme == "pvc":
        return _claim(setting, text, surroundings)
    if scheme == "s3":
        bucket, _, key = rest.partition("/")
        if not _BUCKET.fullmatch(bucket) or not key or key.endswith("/") or "//" in key or "?" in key:
            raise SettingsError(setting, f"{text!r} names no object", "s3://<bucket>/<key>")
        return S3Place(bucket, key)
    if scheme in ("https", "http"):
        return _web(setting, text, surroundings)
    raise SettingsError(setting, f"{scheme}:// is not known", READABLE)


def parse_target(setting: str, text: str, surroundings: Surroundings) -> FilePlace | S3Place:
    """Return the place that can be written under `text`.

    Raises:
        SettingsError: it is none.

    """
    place = parse_place(setting, text, surroundings)
    if isinstance(place, WebPlace):
        raise SettingsError(setting, f"{place.shown} cannot be written", WRITABLE)
    return place


def _file(setting: str, path: str, shown: str) -> FilePlace:
    if not path or "\0" in path or path.endswith("/"):
        raise SettingsError(setting, f"{shown!r} names no file", "the path of a file")
    return FilePlace(Path(path).absolute(), shown)


def _claim(setting: str, text: str, surroundings: Surroundings) -> FilePlace:
    if not re.match(CLAIM_PATTERN, text) or {".", ".."} & set(text.split("/")):
        raise SettingsError(
            setting,
            f"{text!r} is not allowed",
            "pvc://<claim>/<path>, the path of letters, digits and . _ @ + = - without . or .. as a segment",
        )
    claim, path = claim_and_path(text)
    root = surroundings.claims.get(claim, surroundings.models_directory / claim)
    return FilePlace(root / path, text)


def _web(setting: str, text: str, surroundings: Surroundings) -> WebPlace:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise SettingsError(setting, f"is no URL ({error})", "https://<host>/<path>") from error
    del port
    if not parts.hostname or not parts.path.strip("/"):
        raise SettingsError(setting, "the URL names no host or no file", "https://<host>/<path>")
    if parts.username or parts.password:
        raise SettingsError(setting, "the URL holds a user or a password", "a URL without, or a signed one")
    if parts.scheme == "http" and not surroundings.allow_http:
        raise SettingsError(
            setting, "http:// protects nothing on the way", "https://, or --allow-http with it"
        )
    return WebPlace(text)
