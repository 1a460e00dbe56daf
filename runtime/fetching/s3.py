"""An object of S3, by ranges. Credentials, region and endpoint come from the usual variables (`AWS_*`)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import (
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from mcp2026.api.errors import SettingsError
from mcp2026.runtime.dataset.errors import StorageFailedError
from mcp2026.runtime.dataset.stores.locations import S3Place
from mcp2026.runtime.dataset.stores.s3_client import open_bucket
from mcp2026.runtime.fetching.errors import BrokenTransferError, ChangedError, FetchError
from mcp2026.runtime.fetching.transfer import Answer

if TYPE_CHECKING:  # obstore has its types in the stubs alone
    from obstore import BytesStream, GetOptions

_BLOCK = 1024 * 1024
_METADATA = "/latest/"
"""In the URLs of the metadata service of EC2, which the client asks last of all for credentials."""
_NO_CREDENTIALS = (
    "there are no credentials for it: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and this "
    "machine gives none"
)
T = TypeVar("T")


class S3Source:
    """One object."""

    def __init__(self, place: S3Place, stall_seconds: float, *, allow_http: bool = False) -> None:
        self._place = place
        self._stall_seconds = stall_seconds
        self._allow_http = allow_http

    @property
    def shown(self) -> str:
        """The place."""
        return self._place.shown

    @asynccontextmanager
    async def open(self, offset: int, tag: str) -> AsyncIterator[Answer]:
        """Ask for the object from `offset` on, if its ETag is still `tag`; else for all of it."""
        options: GetOptions = {"range": {"offset": offset}, "if_match": tag} if offset and tag else {}
        try:
            bucket = open_bucket(
                self._place.bucket,
                allow_http=self._allow_http,
                silence_seconds=self._stall_seconds,
                retries=0,
            )
        except (SettingsError, StorageFailedError) as error:
            raise FetchError(self.shown, str(error), "Correct the variables") from error
        found = await self._waited(obstore.get_async(bucket, self._place.key, options=options))
        yield Answer(
            found.range[0], found.meta["size"], found.meta["e_tag"] or "", self._blocks(found.stream(_BLOCK))
        )

    async def _blocks(self, stream: "BytesStream") -> AsyncIterator[bytes]:
        iterator = aiter(stream)
        while True:
            try:
                block = await self._waited(anext(iterator))
            except StopAsyncIteration:
                return
            yield bytes(block)

    async def _waited(self, answer: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._stall_seconds):
                return await answer
        except TimeoutError as error:
            raise BrokenTransferError(f"nothing came for {self._stall_seconds:g} s") from error
        except FileNotFoundError as error:
            raise FetchError(self.shown, "there is no such object", "Check bucket and key") from error
        except PreconditionError as error:
            raise ChangedError from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise FetchError(
                self.shown,
                "access is denied",
                "Check the Secret of spec.credentialsSecret (AWS_*) and what it is allowed",
            ) from error
        except (BaseError, OSError) as error:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
            raise BrokenTransferError(f"{_NO_CREDENTIALS} ({said})" if _METADATA in said else said) from error
