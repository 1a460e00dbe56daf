"""The client of S3: credentials, region and endpoint come from the usual variables (`AWS_*`)."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from mcp2026.api.errors import SettingsError
from mcp2026.runtime.dataset.errors import StorageFailedError

if TYPE_CHECKING:  # obstore has its types in the stubs alone
    from obstore.store import ClientConfig

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def open_bucket(bucket: str, *, allow_http: bool, silence_seconds: float = 60.0, retries: int = 6) -> S3Store:
    """Return a client for one bucket; nothing is sent yet.

    A request ends when nothing came for `silence_seconds`, and is sent again up to `retries` times.

    Raises:
        SettingsError: the endpoint is http:// and that was not allowed, or a variable is wrong.
        StorageFailedError: the bundle of certificates cannot be read.

    """
    # A request is a whole object here, which may be large; what must not take long is a silence.
    client: ClientConfig = {
        "timeout": timedelta(hours=6),
        "read_timeout": timedelta(seconds=silence_seconds),
        "connect_timeout": timedelta(seconds=10),
    }
    for variable in _ENDPOINTS:
        if os.environ.get(variable, "").startswith("http://"):
            if not allow_http:
                raise SettingsError(
                    variable, "http:// protects nothing on the way", "https://, or --allow-http"
                )
            client["allow_http"] = True
    if bundle := os.environ.get("AWS_CA_BUNDLE"):
        try:
            client["root_certificate"] = Path(bundle).read_text()
        except OSError as error:
            raise StorageFailedError(
                "AWS_CA_BUNDLE", f"{bundle}: {error.strerror}", "Give a readable file"
            ) from error
    try:
        return S3Store(
            bucket,
            client_options=client,
            retry_config={"max_retries": retries, "retry_timeout": timedelta(minutes=2)},
        )
    except (BaseError, ValueError) as error:
        raise SettingsError("AWS_*", _first_line(error), "the variables of the AWS command line") from error


@contextmanager
def s3_errors(place: str) -> Iterator[None]:
    """Turn errors of the client about `place` into one that says what to do.

    `FileNotFoundError`, `AlreadyExistsError` and `PreconditionError` are answers, and pass.

    Raises:
        StorageFailedError: it failed, after all retries.

    """
    try:
        yield
    except (FileNotFoundError, AlreadyExistsError, PreconditionError):
        raise
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise StorageFailedError(
            place, _first_line(error), "Check the credentials (AWS_*) and what they are allowed"
        ) from error
    except OSError as error:
        remedy = "Free space" if error.errno == errno.ENOSPC else "Check the network"
        raise StorageFailedError(place, error.strerror or _first_line(error), remedy) from error
    except BaseError as error:
        raise StorageFailedError(
            place, _first_line(error), "Check bucket, endpoint and network, and run again"
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
