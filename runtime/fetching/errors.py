"""Why a source cannot be had. Each error says what, why, and what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcp2026.runtime.errors import StartupError


class FetchError(StartupError):
    """A version's file cannot be fetched; to try at once again would not help."""

    def __init__(self, shown: str, problem: str, remedy: str) -> None:
        super().__init__(f"cannot fetch {shown}: {problem}. {remedy}")
        self.problem = problem


class BrokenTransferError(Exception):
    """A transfer ended early, or did not begin; another attempt may succeed."""


class ChangedError(Exception):
    """The source is not what it was when the transfer began: begin anew."""


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def cache_errors(shown: str, folder: Path, arrived: int = 0) -> Iterator[None]:
    """Turn errors of the system about the cache in `folder` into one that says what to do.

    Raises:
        FetchError: the system refused.

    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise FetchError(
                shown,
                f"the disk of the model cache {folder} is full after {arrived} bytes ({error.strerror})",
                "Give it more room, or have fewer versions served",
            ) from error
        raise FetchError(
            shown,
            f"the model cache {folder} cannot be used ({error.strerror or error})",
            "Give a folder that this user may write",
        ) from error
