"""A served model that is stopped: where its servers' logs go, and how each of them ended."""

from typing import Annotated

import msgspec

from mcp2026.api.batch_run import ARCHIVE_PATTERN, ARCHIVE_TEXT
from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.kubernetes_names import SecretName

ENDED_SERVERS_KEPT = 1024
"""As many as the CRD's maxItems."""
LONGEST_PROBLEM = 200
"""Characters, as the CRD's maxLength: a status has to hold it of all servers."""


class LogArchive(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Where the logs go when the model is stopped."""

    folder: Annotated[str, msgspec.Meta(pattern=ARCHIVE_PATTERN, max_length=1024, description=ARCHIVE_TEXT)]
    """Each pod's log becomes ``<folder>/<pod>.log.gz``."""
    credentials_secret: SecretName | None = None
    """Its `AWS_*` keys become environment of the servers."""


class EndedServer(msgspec.Struct, frozen=True, rename="camel"):
    """How one server ended, as its container's exit code and message say."""

    pod: str
    exit_code: int
    reason: str = ""
    served: bool = False
    """Whether it served until it was stopped."""
    drained: int = 0
    """Requests that it answered after that."""
    archive_sha256: str = ""
    """Of its archived log; empty: it has none."""
    problem: str = ""
    """Why it did not end well, in its own words; at most `LONGEST_PROBLEM` characters."""


def check_log_archive(archive: LogArchive) -> None:
    """Check what a pattern cannot: the CRD has the same in CEL.

    Raises:
        InvalidResourceError: the path leads elsewhere.

    """
    if archive.folder.startswith("pvc://") and {".", ".."} & set(archive.folder.split("/")):
        raise InvalidResourceError(
            "spec.logArchive.folder",
            f"{archive.folder!r} has . or .. as a segment",
            "a path without . or .. as a segment",
        )
