"""A lock in a bucket: an object that its holder writes anew, each time only if it is as the holder left it.

Nobody compares clocks. Whoever finds the lock watches it for as long as a lease lasts; a living holder writes
it meanwhile, and one that was killed does not.
"""

import logging
import os
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import S3Store

from mcp2026.runtime.dataset.errors import BatchError, OutputRefusedError, StorageFailedError
from mcp2026.runtime.dataset.stopping import Stop
from mcp2026.runtime.dataset.stores.s3_client import s3_errors

if TYPE_CHECKING:  # obstore has its types in the stubs alone
    from obstore import UpdateVersion

log = logging.getLogger(__name__)

_RENEWALS = 4
"""In the time that a lease lasts."""


class Lease:
    """Held by at most one process, as long as it is renewed in time."""

    def __init__(self, bucket: S3Store, key: str, shown: str, seconds: float) -> None:
        self._bucket = bucket
        self._key = key
        self._shown = shown
        self._seconds = seconds
        self._holder = f"{socket.gethostname()} {os.getpid()} {os.urandom(8).hex()}"
        self._tag: str | None = None
        self._writes = 0
        self._over = threading.Event()
        self._lost = False
        self._thread: threading.Thread | None = None

    def acquire(self, stop: Stop) -> None:
        """Take the lease; wait for as long as one lasts if somebody has it who may be gone.

        `stop` is set if the lease is lost later on.

        Raises:
            OutputRefusedError: somebody has it who is alive.
            StorageFailedError: the bucket cannot be written.
            StoppedError: the run was told to stop.

        """
        while not self._write("create"):
            found = self._tag_there()
            if found is None:
                continue
            log.info("%s: locked by a run that may be gone; watching for %g s", self._shown, self._seconds)
            began = time.monotonic()
            while time.monotonic() - began < self._seconds:
                if stop.wait(self._seconds / (2 * _RENEWALS)):
                    stop.check()
                now = self._tag_there()
                if now is not None and now != found:
                    raise OutputRefusedError(
                        self._shown,
                        "another run writes it",
                        "Wait until that one has ended, or give another --output",
                    )
                if now is None:
                    break
            else:
                if self._write({"e_tag": found}):
                    break
        self._thread = threading.Thread(target=self._renew, args=(stop,), name="lease", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Remove the lock.

        Raises:
            OutputRefusedError: the lease was lost meanwhile.

        """
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._lost:
            raise OutputRefusedError(
                self._shown, "another run took it over, as this one was not heard of", "Run again"
            )
        with s3_errors(self._shown), suppress(FileNotFoundError):
            obstore.delete(self._bucket, self._key)

    def _renew(self, stop: Stop) -> None:
        heard = time.monotonic()
        while not self._over.wait(self._seconds / _RENEWALS):
            try:
                if self._write({"e_tag": self._tag}):
                    heard = time.monotonic()
                    continue
            except BatchError as error:
                log.warning("the lease could not be renewed: %s", error)
                if time.monotonic() - heard < self._seconds:
                    continue
            self._lost = True
            stop.set()
            return

    def _write(self, mode: "Literal['create'] | UpdateVersion") -> bool:
        """Write the lock; False if the condition does not hold."""
        self._writes += 1
        content = f"{self._holder} {self._writes}".encode()
        with s3_errors(self._shown):
            try:
                answer = obstore.put(self._bucket, self._key, content, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            except FileNotFoundError:
                if mode == "create":
                    raise StorageFailedError(
                        self._shown, "there is no such bucket", "Check bucket, endpoint and network"
                    ) from None
                return False  # somebody removed the lock
        self._tag = answer["e_tag"]
        return True

    def _tag_there(self) -> str | None:
        with s3_errors(self._shown):
            try:
                return obstore.head(self._bucket, self._key)["e_tag"]
            except FileNotFoundError:
                return None
