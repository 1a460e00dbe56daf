"""Results in a bucket: a part is one put, which S3 takes as a whole or not at all."""

import hashlib
import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import obstore

from mcp2026.runtime.dataset.stopping import Stop
from mcp2026.runtime.dataset.stores.interface import Record
from mcp2026.runtime.dataset.stores.locations import S3Place
from mcp2026.runtime.dataset.stores.s3_client import open_bucket, s3_errors
from mcp2026.runtime.dataset.stores.s3_lease import Lease

log = logging.getLogger(__name__)

_BLOCK = 8 * 1024 * 1024
_LOCK = "lock"
_RECORDS = ("plan.json", "assembled.json")


class S3Store:
    """Parts and records lie below `<key>.parts/`, the record of the result is `<key>.result.json`."""

    def __init__(self, place: S3Place, scratch: Path, *, allow_http: bool, lease_seconds: float) -> None:
        """Put the output together in the folder `scratch`.

        Raises:
            SettingsError: the variables of the client are wrong.

        """
        self.shown = place.shown
        self._bucket = open_bucket(place.bucket, allow_http=allow_http)
        self._output = place.key
        self._parts = f"{place.key}.parts/"
        self._scratch = scratch
        self._lease_seconds = lease_seconds

    @contextmanager
    def locked(self, stop: Stop) -> Iterator[None]:
        """Hold a lease on an object among the parts; it is over when it was not renewed for its time."""
        lease = Lease(self._bucket, self._parts + _LOCK, self.shown, self._lease_seconds)
        lease.acquire(stop)
        try:
            yield
        finally:
            lease.release()

    def read_record(self, record: Record) -> bytes | None:
        """Return a record, None if there is none."""
        return self._get(self._record(record))

    def write_record(self, record: Record, content: bytes) -> None:
        """Write or replace a record."""
        self._put(self._record(record), content)

    def remove_record(self, record: Record) -> None:
        """Remove a record if it is there."""
        self._delete(self._record(record))

    def part_names(self) -> set[str]:
        """Return the names of all parts that are there."""
        with s3_errors(self.shown):
            pages = list(obstore.list(self._bucket, self._parts))
        names = {item["path"].removeprefix(self._parts) for page in pages for item in page}
        return names - {_LOCK, *_RECORDS}

    def write_part(self, name: str, content: bytes) -> None:
        """Write a part by one put."""
        self._put(self._parts + name, content)

    def open_parts(self, names: list[str]) -> Iterator[BinaryIO]:
        """Fetch parts one after the other."""
        for name in names:
            with s3_errors(self.shown):
                content = obstore.get(self._bucket, self._parts + name).bytes()
            yield io.BytesIO(memoryview(content))

    def remove_parts(self) -> None:
        """Remove all parts."""
        for name in sorted(self.part_names()):
            self._delete(self._parts + name)

    def assembly(self) -> Path:
        """Return a name in the scratch folder."""
        return self._scratch / "output"

    def publish(self, assembled: Path) -> None:
        """Upload the file; it is there when the last piece of it has arrived."""
        with s3_errors(self.shown):
            obstore.put(self._bucket, self._output, assembled, chunk_size=_BLOCK, max_concurrency=4)
        assembled.unlink()

    def output_bytes(self) -> int | None:
        """Return the size of the output, None if there is none."""
        with s3_errors(self.shown):
            try:
                return int(obstore.head(self._bucket, self._output)["size"])
            except FileNotFoundError:
                return None

    def output_sha256(self, stop: Stop) -> str:
        """Return the digest of the output as it can be read now."""
        digest = hashlib.sha256()
        with s3_errors(self.shown):
            for block in obstore.get(self._bucket, self._output).stream(min_chunk_size=_BLOCK):
                digest.update(block)
                stop.check()
        return digest.hexdigest()

    def clean(self) -> None:
        """Nothing is left: a bucket has no folders, and the lease is removed when it is released."""

    def _record(self, record: Record) -> str:
        return f"{self._output}.result.json" if record == "result" else f"{self._parts}{record}.json"

    def _get(self, key: str) -> bytes | None:
        with s3_errors(self.shown):
            try:
                return bytes(obstore.get(self._bucket, key).bytes())
            except FileNotFoundError:
                return None

    def _put(self, key: str, content: bytes) -> None:
        with s3_errors(self.shown):
            obstore.put(self._bucket, key, content, use_multipart=False)

    def _delete(self, key: str) -> None:
        with s3_errors(self.shown):
            try:
                obstore.delete(self._bucket, key)
            except FileNotFoundError:
                log.debug("%s was gone already", key)
