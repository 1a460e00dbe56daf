"""A data set from wherever it is, as a file of this machine, with its digest."""

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import obstore

from mcp2026.runtime.dataset.errors import InputRefusedError, storage_errors
from mcp2026.runtime.dataset.stopping import Stop
from mcp2026.runtime.dataset.stores.download import download
from mcp2026.runtime.dataset.stores.locations import FilePlace, Place, S3Place
from mcp2026.runtime.dataset.stores.s3_client import open_bucket, s3_errors

_BLOCK = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Fetched:
    """A data set that is here."""

    path: Path
    shown: str
    sha256: str
    identity: tuple[int, ...]

    def check_unchanged(self) -> None:
        """Raise unless the file is as it was when its digest was made.

        Raises:
            InputRefusedError: it was changed, replaced or removed.

        """
        with storage_errors(self.shown):
            now = _identity(self.path.stat())
        if now != self.identity:
            raise InputRefusedError(
                self.shown,
                "it was changed while it was read",
                "Leave it alone, and begin anew with --restart",
            )


def fetch(place: Place, expected: str | None, scratch: Path, *, allow_http: bool, stop: Stop) -> Fetched:
    """Return the data set at `place`; what is elsewhere is copied into the folder `scratch`.

    Raises:
        InputRefusedError: it is not there, is no file, or has another sha256 than `expected`.
        StorageFailedError: it cannot be read, or there is no room for it.
        StoppedError: the run was told to stop.

    """
    if isinstance(place, FilePlace):
        path, digest = place.path, _digest_of_file(place, stop)
    else:
        path = scratch / "input"
        if isinstance(place, S3Place):
            digest = _copy_object(place, path, allow_http, stop)
        else:
            digest = download(place, path, allow_http=allow_http, stop=stop)
    if expected is not None and digest != expected:
        raise InputRefusedError(
            place.shown,
            f"its sha256 is {digest}, but --input-sha256 asks for {expected}",
            "The file was changed or is another version: copy it again, or correct the digest",
        )
    with storage_errors(place.shown):
        return Fetched(path, place.shown, digest, _identity(path.stat()))


def sha256_of(path: Path, stop: Stop) -> str:
    """Return the digest of a file, in lower-case hex.

    Raises:
        OSError: it cannot be read.
        StoppedError: the run was told to stop.

    """
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            stop.check()
    return digest.hexdigest()


def _digest_of_file(place: FilePlace, stop: Stop) -> str:
    try:
        mode = place.path.stat().st_mode
    except FileNotFoundError:
        raise InputRefusedError(place.shown, "there is no such file", "Check --input") from None
    except OSError as error:
        raise InputRefusedError(place.shown, str(error.strerror), "Check --input") from error
    if not stat.S_ISREG(mode):
        raise InputRefusedError(place.shown, "it is no regular file", "Give one file")
    with storage_errors(place.shown):
        return sha256_of(place.path, stop)


def _copy_object(place: S3Place, target: Path, allow_http: bool, stop: Stop) -> str:
    bucket = open_bucket(place.bucket, allow_http=allow_http)
    digest = hashlib.sha256()
    try:
        with s3_errors(place.shown):
            blocks = obstore.get(bucket, place.key).stream(min_chunk_size=_BLOCK)
    except FileNotFoundError:
        raise InputRefusedError(place.shown, "there is no such object", "Check --input") from None
    with storage_errors(str(target)):
        file = target.open("wb")
    with file, s3_errors(place.shown):
        for block in blocks:
            digest.update(block)
            with storage_errors(str(target)):
                file.write(block)
            stop.check()
    return digest.hexdigest()


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
