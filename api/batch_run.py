"""What a model of mode Batch runs, and how far it is: `spec.batch` and `status.batch`."""

from typing import Annotated, Final

import msgspec

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.kubernetes_names import SecretName
from mcp2026.api.sources import BUCKET, CLAIM, URL

_SUFFIX: Final = r"[.](npy|npz|jsonl|parquet)"
INPUT_PATTERN: Final = rf"^(({CLAIM}|{BUCKET}){_SUFFIX}|{URL}{_SUFFIX}([?][!-~]*)?)$"
OUTPUT_PATTERN: Final = rf"^({CLAIM}|{BUCKET}){_SUFFIX}$"
ARCHIVE_PATTERN: Final = rf"^({CLAIM}|{BUCKET})$"
INPUT_TEXT: Final = (
    "pvc://<claim>/<path>, s3://<bucket>/<key> or https://, ending in .npy, .npz, .jsonl or .parquet"
)
OUTPUT_TEXT: Final = "pvc://<claim>/<path> or s3://<bucket>/<key>, ending in .npy, .npz, .jsonl or .parquet"
ARCHIVE_TEXT: Final = "pvc://<claim>/<path> or s3://<bucket>/<key>"
_LONGEST: Final = 1024


class Batch(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One data set that goes through the model, row by row, and where its results go."""

    input: Annotated[str, msgspec.Meta(pattern=INPUT_PATTERN, max_length=_LONGEST, description=INPUT_TEXT)]
    output: Annotated[str, msgspec.Meta(pattern=OUTPUT_PATTERN, max_length=_LONGEST, description=OUTPUT_TEXT)]
    input_sha256: (
        Annotated[
            str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$", description="the digest as 64 lower-case hex digits")
        ]
        | None
    ) = None
    """Another data set is refused."""
    rows_per_part: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    """Rows that are written at a time. None: as many as make about 32 MiB."""
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=31_536_000)] | None = None
    """Longest that the model may be Running, over all attempts."""
    max_failures: Annotated[int, msgspec.Meta(ge=0, le=100)] = 3
    """Attempts that may fail before the run has failed: one more than this many are made."""
    archive: (
        Annotated[str, msgspec.Meta(pattern=ARCHIVE_PATTERN, max_length=_LONGEST, description=ARCHIVE_TEXT)]
        | None
    ) = None
    """Where the log goes at the end, as gzip. None: beside the output."""
    credentials_secret: SecretName | None = None
    """Its `AWS_*` keys become environment of the run."""

    @property
    def archive_place(self) -> str:
        """Where the log goes."""
        return self.archive or f"{self.output}.log.gz"


class BatchStatus(msgspec.Struct, frozen=True, rename="camel"):
    """How far a run is."""

    rows_done: int = 0
    """Rows whose results last."""
    rows_total: int = 0
    """0: not known yet."""
    attempts: int = 0
    """Pods that the present Job has started."""
    updated_time: str = ""
    """When these numbers were observed; RFC 3339, UTC."""


def check_batch(batch: Batch) -> None:
    """Check the rules that span several fields: the CRD has the same ones in CEL.

    Raises:
        InvalidResourceError: the first rule that does not hold.

    """
    places = {"input": batch.input, "output": batch.output, "archive": batch.archive_place}
    for name, place in places.items():
        if place.startswith("pvc://") and {".", ".."} & set(place.split("/")):
            raise InvalidResourceError(
                f"spec.batch.{name}",
                f"{place!r} has . or .. as a segment",
                "a path without . or .. as a segment",
            )
    if len(set(places.values())) != len(places):
        raise InvalidResourceError(
            "spec.batch", "input, output and archive are not three places", "three different places"
        )
