"""A run from beginning to end: data set, model, plan, parts, output."""

import hashlib
import logging
import math
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

import msgspec

from mcp2026.runtime.dataset import model
from mcp2026.runtime.dataset.errors import (
    ExecutionFailedError,
    InputRefusedError,
    OutputRefusedError,
    StorageFailedError,
    storage_errors,
)
from mcp2026.runtime.dataset.execution import Runner
from mcp2026.runtime.dataset.formats.choice import make_sink, open_source
from mcp2026.runtime.dataset.formats.interface import Results, Sink, Source
from mcp2026.runtime.dataset.pipeline import Pipeline
from mcp2026.runtime.dataset.plan import (
    Decision,
    Found,
    Part,
    Plan,
    Result,
    decide,
    parts_of,
    remaining,
    rows_for_part,
)
from mcp2026.runtime.dataset.progress import Counts
from mcp2026.runtime.dataset.rows import Rows, fit, row_form, wanted_columns
from mcp2026.runtime.dataset.settings import BatchSettings
from mcp2026.runtime.dataset.stopping import Stop
from mcp2026.runtime.dataset.stores.fetching import Fetched, fetch
from mcp2026.runtime.dataset.stores.interface import OutputStore, Record
from mcp2026.runtime.dataset.stores.local import LocalStore
from mcp2026.runtime.dataset.stores.locations import FilePlace
from mcp2026.runtime.dataset.stores.s3 import S3Store
from mcp2026.runtime.execution.cpu_quota import usable_cpus
from mcp2026.runtime.model.loaded import LoadedVersion

log = logging.getLogger(__name__)

T = TypeVar("T")

_TEXT_BYTES = 32
"""What an element of text counts as when parts are sized."""


class Assembled(msgspec.Struct, frozen=True):
    """What was put together out of all parts, before it became the output."""

    rows: int
    bytes: int
    sha256: str


def run_data_set(settings: BatchSettings, counts: Counts, stop: Stop) -> Result:
    """Do what is left to do, and return what the output is.

    Raises:
        BatchError: it cannot be done; parts that are written stay.
        SettingsError: settings do not fit each other or this machine.
        StoppedError: it was told to stop; parts that are written stay.

    """
    with ExitStack() as stack:
        with storage_errors("--scratch"):
            folder = tempfile.TemporaryDirectory(prefix="mcp2026-batch-", dir=settings.scratch)
        scratch = Path(stack.enter_context(folder))
        store = _open_store(settings, scratch)
        fetched = fetch(
            settings.input, settings.input_sha256, scratch, allow_http=settings.allow_http, stop=stop
        )
        model_sha256 = model.model_sha256(settings.served.path, stop)
        version = model.load(
            settings.config, settings.served, settings.threads or usable_cpus(), settings.provider
        )
        stop.check()
        signature = version.signature
        sink = make_sink(settings.output_format, [spec.name for spec in signature.outputs])
        source = stack.enter_context(
            closing(open_source(settings.input_format, fetched.path, signature.inputs, fetched.shown))
        )
        if source.rows == 0:
            raise InputRefusedError(fetched.shown, "it has no rows", "Give a data set with at least one row")
        log.info("%s: %d rows, sha256 %s", fetched.shown, source.rows, fetched.sha256)
        plan = _plan(settings, fetched, model_sha256, source, version)
        stack.enter_context(store.locked(stop))
        return _Run(store, sink, fetched, counts, stop).go(settings, plan, source, version)


@dataclass(frozen=True)
class _Run:
    """A run that holds the lock of its output."""

    store: OutputStore
    sink: Sink
    fetched: Fetched
    counts: Counts
    stop: Stop

    def go(self, settings: BatchSettings, wanted: Plan, source: Source, version: LoadedVersion) -> Result:
        store = self.store
        found = Found(_record(store, "plan", Plan), _record(store, "result", Result), store.output_bytes())
        decision = decide(
            wanted,
            found,
            fixed_rows_per_part=settings.rows_per_part is not None,
            restart=settings.restart,
        )
        if decision == "finished":
            assert found.result is not None
            log.info("%s: an earlier run has made it", store.shown)
            self.counts.begin(wanted.rows, 0, wanted.rows, 0)
            return self._finish(found.result)
        plan = self._begin(decision, wanted, found.plan)
        self._do_parts(plan, source, version)
        self.counts.phase = "assembling"
        assembled = self._published(plan) if decision == "resume" else None
        return self._finish(self._result(plan, assembled or self._assemble(plan)))

    def _begin(self, decision: Decision, wanted: Plan, before: Plan | None) -> Plan:
        """Return the plan, which is written when this returns."""
        if decision == "resume":
            assert before is not None
            return before
        # In this order: a run that ends in between finds a plan whose parts are missing, or none.
        self.store.remove_record("result")
        self.store.remove_record("assembled")
        self.store.remove_parts()
        self.store.remove_record("plan")
        self.store.write_record("plan", msgspec.json.encode(wanted))
        return wanted

    def _do_parts(self, plan: Plan, source: Source, version: LoadedVersion) -> None:
        parts = parts_of(plan)
        left = remaining(plan, self.store.part_names())
        resumed = plan.rows - sum(part.rows for part in left)
        self.counts.begin(plan.rows, len(parts), resumed, len(parts) - len(left))
        if resumed:
            log.info("%d of %d rows were done by an earlier run", resumed, plan.rows)
        form = row_form(version.signature, source.rank)
        if form != "shared":
            log.warning("rows of this model do not share executions: they run one at a time")
        wanted = wanted_columns(version.signature, form)

        def read(part: Part) -> Rows:
            rows = source.read(part.first, part.rows, wanted)
            columns = tuple(
                fit(one, column, part.first, source.place)
                for one, column in zip(wanted, rows.columns, strict=True)
            )
            return Rows(rows.first, rows.count, columns, rows.ids)

        def write(part: Part, results: Results) -> None:
            self.store.write_part(part.name, self.sink.encode(results))
            self.counts.part_done(part.rows)

        with closing(Runner(version, form, source.place)) as runner:
            Pipeline(read, lambda rows: runner.run(rows, self.stop), write, self.stop).go(left)
        self.fetched.check_unchanged()

    def _assemble(self, plan: Plan) -> Assembled:
        """Make the output out of all parts, and check what can be read of it."""
        path = self.store.assembly()
        names = [part.name for part in parts_of(plan)]

        def parts() -> Iterator[BinaryIO]:
            for part in self.store.open_parts(names):
                self.stop.check()
                yield part

        with storage_errors(str(path)), path.open("wb") as file:
            target = _Digesting(file)
            rows = self.sink.assemble(parts, cast("BinaryIO", target))
        if rows != plan.rows:
            raise ExecutionFailedError(
                self.store.shown, f"its parts have {rows} rows of {plan.rows}", "Begin anew with --restart"
            )
        assembled = Assembled(rows, target.tell(), target.sha256)
        self.store.write_record("assembled", msgspec.json.encode(assembled))
        self.stop.check()
        self.store.publish(path)
        actual = self.store.output_sha256(self.stop)
        if actual != assembled.sha256:
            raise StorageFailedError(
                self.store.shown,
                f"sha256 {assembled.sha256} was written, but {actual} is read",
                "Check the volume, and run again: the parts are still there",
            )
        return assembled

    def _published(self, plan: Plan) -> Assembled | None:
        """Return what a run before published, if it was killed just after."""
        assembled = _record(self.store, "assembled", Assembled)
        if assembled is None or assembled.rows != plan.rows:
            return None
        if self.store.output_bytes() != assembled.bytes:
            return None
        return assembled if self.store.output_sha256(self.stop) == assembled.sha256 else None

    def _result(self, plan: Plan, assembled: Assembled) -> Result:
        result = Result(
            plan.input_sha256,
            plan.model_sha256,
            plan.output_format,
            assembled.rows,
            assembled.bytes,
            assembled.sha256,
        )
        self.store.write_record("result", msgspec.json.encode(result) + b"\n")
        return result

    def _finish(self, result: Result) -> Result:
        """Remove what is not needed any more. A run that ends meanwhile finds the result, and goes on."""
        self.store.remove_parts()
        self.store.remove_record("assembled")
        self.store.remove_record("plan")
        self.store.clean()
        self.counts.phase = "done"
        return result


class _Digesting:
    """A file that is written forward, with the digest of what was written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._size = 0
        self.closed = False

    def write(self, content: bytes) -> int:
        self._file.write(content)
        self._digest.update(content)
        self._size += memoryview(content).nbytes
        return memoryview(content).nbytes

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        self._file.flush()

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def close(self) -> None:
        """Whoever opened the file closes it."""

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def _open_store(settings: BatchSettings, scratch: Path) -> OutputStore:
    if isinstance(settings.output, FilePlace):
        return LocalStore(settings.output)
    return S3Store(
        settings.output, scratch, allow_http=settings.allow_http, lease_seconds=settings.lease_seconds
    )


def _plan(
    settings: BatchSettings, fetched: Fetched, model_sha256: str, source: Source, version: LoadedVersion
) -> Plan:
    signature = version.signature
    row_bytes = sum(
        math.prod(dim or 1 for dim in (spec.dims[1:] if signature.shared else spec.dims))
        * (_TEXT_BYTES if spec.datatype == "BYTES" else spec.dtype.itemsize)
        for spec in (*signature.inputs, *signature.outputs)
    )
    return Plan(
        input_sha256=fetched.sha256,
        model_sha256=model_sha256,
        rows=source.rows,
        rows_per_part=settings.rows_per_part or rows_for_part(row_bytes, version.max_rows or 1),
        output_format=settings.output_format,
    )


def _record(store: OutputStore, record: Record, form: type[T]) -> T | None:
    content = store.read_record(record)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=form)
    except msgspec.DecodeError as error:
        raise OutputRefusedError(
            store.shown, f"the record {record!r} is damaged ({error})", "Begin anew with --restart"
        ) from error
