"""Which parts a run has, which are still to do, and whether it may go on where another one stopped. Pure.

Parts follow from the plan alone, so every run with the same plan cuts the same rows at the same places: the
batches in a part are the same too, and so are the bytes of its result.
"""

from collections.abc import Collection
from typing import Literal, NamedTuple

import msgspec

from mcp2026.runtime.dataset.errors import InputRefusedError, ModelRefusedError, OutputRefusedError

PART_BYTES = 32 * 1024 * 1024
"""About how much of inputs and results a part holds, unless its rows are given."""
MOST_ROWS = 65_536
ROWS_PER_PART_RANGE = (1, 10_000_000)

_RESTART = "Give another --output, or begin anew with --restart"


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run is about. It is written before the first part."""

    input_sha256: str
    model_sha256: str
    rows: int
    rows_per_part: int
    output_format: str
    version: int = 1
    """Of this document and of the form of the parts."""


class Result(msgspec.Struct, frozen=True):
    """What a run has made; it lies beside the output once that is whole."""

    input_sha256: str
    model_sha256: str
    output_format: str
    rows: int
    bytes: int
    sha256: str
    """Of the output, in lower-case hex."""


class Part(NamedTuple):
    """Rows that are read, run and written together."""

    first: int
    rows: int

    @property
    def name(self) -> str:
        """Name of the part's object; names sort as rows do."""
        return f"{self.first:012d}-{self.rows}"

    @property
    def end(self) -> int:
        """The row after the last."""
        return self.first + self.rows


class Found(NamedTuple):
    """What lies at the output's place when a run begins."""

    plan: Plan | None
    result: Result | None
    output_bytes: int | None
    """None: there is no output."""


Decision = Literal["begin", "resume", "finished"]


def parts_of(plan: Plan) -> list[Part]:
    """Return all parts in the order of their rows."""
    step = plan.rows_per_part
    return [Part(first, min(step, plan.rows - first)) for first in range(0, plan.rows, step)]


def remaining(plan: Plan, done: Collection[str]) -> list[Part]:
    """Return the parts whose objects are not there. A name that is none of the plan's counts for nothing."""
    return [part for part in parts_of(plan) if part.name not in done]


def rows_for_part(row_bytes: int, batch_rows: int) -> int:
    """Return the rows of a part of about `PART_BYTES`: whole batches, one at least."""
    batches = min(PART_BYTES // max(1, row_bytes), MOST_ROWS) // batch_rows
    return max(1, batches) * batch_rows


def decide(wanted: Plan, found: Found, *, fixed_rows_per_part: bool, restart: bool) -> Decision:
    """Return what a run that wants `wanted` has to do, given what was `found`.

    `fixed_rows_per_part` says that the user asked for the rows of a part; else those of the plan that was
    found are as good.

    Raises:
        InputRefusedError: another data set was begun with.
        ModelRefusedError: another model was begun with.
        OutputRefusedError: the output is not ours to replace, or was begun with other settings.

    """
    if restart:
        return "begin"
    result, plan = found.result, found.plan
    if result is not None and found.output_bytes is not None:
        _same_work(wanted, result, "the output was made")
        if result.bytes != found.output_bytes:
            raise OutputRefusedError("--output", "it was changed since it was written", _RESTART)
        return "finished"
    if plan is not None:
        if plan.version != wanted.version:
            raise OutputRefusedError("--output", "parts of another release are there", _RESTART)
        _same_work(wanted, plan, "parts were made")
        if fixed_rows_per_part and plan.rows_per_part != wanted.rows_per_part:
            raise OutputRefusedError(
                "--rows-per-part",
                f"{wanted.rows_per_part}, but parts were made with {plan.rows_per_part}",
                f"Leave it out, or give {plan.rows_per_part}; or begin anew with --restart",
            )
        return "resume"
    if found.output_bytes is not None and result is None:
        raise OutputRefusedError("--output", "something is there that no run has recorded", _RESTART)
    return "begin"


def _same_work(wanted: Plan, before: Plan | Result, when: str) -> None:
    if before.input_sha256 != wanted.input_sha256 or before.rows != wanted.rows:
        raise InputRefusedError(
            "--input",
            f"its sha256 is {wanted.input_sha256}, but {when} from {before.input_sha256}",
            f"Give that data set. {_RESTART}",
        )
    if before.model_sha256 != wanted.model_sha256:
        raise ModelRefusedError(
            "model",
            f"its sha256 is {wanted.model_sha256}, but {when} with {before.model_sha256}",
            f"Give that model. {_RESTART}",
        )
    if before.output_format != wanted.output_format:
        raise OutputRefusedError(
            "--output", f"it ends in .{wanted.output_format}, but {when} as .{before.output_format}", _RESTART
        )
