"""The log of a server that ends, put to the place that its model's user named."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from mcp2026.api.errors import SettingsError
from mcp2026.runtime.dataset.errors import StorageFailedError
from mcp2026.runtime.dataset.log_archive import archive_logs
from mcp2026.runtime.dataset.stores.locations import FilePlace, S3Place
from mcp2026.runtime.ending.report import Report, archived, not_archived

log = logging.getLogger(__name__)

ATTEMPTS_SECONDS = 60.0
"""So long it is tried: a store may be away for a moment, and a pod that ends holds its GPU."""
_FIRST_BACKOFF, _LONGEST_BACKOFF = 1.0, 10.0


def with_archive(
    report: Report, files: Sequence[Path], target: FilePlace | S3Place, scratch: Path, *, allow_http: bool
) -> Report:
    """Archive `files`, in their order, as one, and return `report` with the outcome."""
    deadline, backoff = time.monotonic() + ATTEMPTS_SECONDS, _FIRST_BACKOFF
    while True:
        try:
            archive = archive_logs(files, target, scratch, allow_http=allow_http)
        except SettingsError as error:  # another attempt would say the same
            return not_archived(report, target.shown, str(error))
        except (StorageFailedError, OSError) as error:
            log.warning("the log was not archived: %s", error)
            if time.monotonic() + backoff > deadline:
                return not_archived(report, target.shown, str(error))
            time.sleep(backoff)
            backoff = min(2 * backoff, _LONGEST_BACKOFF)
        except Exception as error:  # a fault of ours; a model waits for the reports of its servers
            log.exception("archiving the log met an error that nobody foresaw")
            return not_archived(report, target.shown, f"{type(error).__name__}: {error}")
        else:
            return archived(report, target.shown, archive.sha256)
