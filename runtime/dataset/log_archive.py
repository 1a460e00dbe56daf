"""The log of a process, archived with its digest: the evidence that its data is synchronised (SPEC R2.1)."""

import gzip
import hashlib
import io
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import obstore

from mcp2026.runtime.dataset.errors import storage_errors
from mcp2026.runtime.dataset.stores.locations import FilePlace, S3Place
from mcp2026.runtime.dataset.stores.s3_client import open_bucket, s3_errors


class Archive(NamedTuple):
    """A log that is archived."""

    sha256: str
    """Of the compressed file, in lower-case hex."""
    bytes: int


def archive_logs(
    log_files: Sequence[Path], target: FilePlace | S3Place, scratch: Path, *, allow_http: bool
) -> Archive:
    """Compress what `log_files` hold now, one after the other, and put it to `target`, whole or not at all.

    Equal logs are equal bytes. What is written later is not in the archive.

    Raises:
        SettingsError: the variables of S3's client are wrong.
        StorageFailedError: the log cannot be read, or the archive not written.

    """
    unfinished = (
        target.path.with_name(f".{target.path.name}.{os.getpid()}")
        if isinstance(target, FilePlace)
        else scratch / "log.gz"
    )
    try:
        with storage_errors(target.shown):
            unfinished.parent.mkdir(parents=True, exist_ok=True)
            _compress(log_files, unfinished)
            with unfinished.open("rb") as file:
                archive = Archive(hashlib.file_digest(file, "sha256").hexdigest(), file.seek(0, io.SEEK_END))
        if isinstance(target, FilePlace):
            with storage_errors(target.shown):
                unfinished.replace(target.path)
        else:
            bucket = open_bucket(target.bucket, allow_http=allow_http)
            with s3_errors(target.shown):
                obstore.put(bucket, target.key, unfinished)
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return archive


def _compress(sources: Sequence[Path], target: Path) -> None:
    with target.open("wb") as raw:
        with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as compressed:
            for source in sources:
                with source.open("rb") as log:
                    shutil.copyfileobj(log, compressed)
        raw.flush()
        os.fsync(raw.fileno())
