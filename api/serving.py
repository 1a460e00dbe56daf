"""What a runtime process is told to serve: by the operator in a cluster, by `mcp2026 local` elsewhere.

One immutable document per revision. In a cluster it is a ConfigMap mounted into the pod, locally a file.
"""

import json
import math
from pathlib import PurePosixPath
from typing import Annotated, Literal

import msgspec

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.schema_errors import explain

MAX_NAME_BYTES = 250
"""Longest name of a model or a version, in UTF-8: the metrics keep 500 bytes for both."""
MAX_BATCH_SIZE_RANGE = (4, 128)
PREFETCH_QUEUE_DEPTH_RANGE = (2, 32)
MAX_DELAY_MS_RANGE = (0, 65_535)
MIN_BATCH_SIZE_RANGE = (1, 128)
MAX_REVISION = 2**63 - 1
MAX_VERSIONS = 16
"""Of one model."""


class Batching(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Limits of dynamic batching (SPEC R1.2, R2.3). Sizes count rows, not requests."""

    max_batch_size: Annotated[int, msgspec.Meta(ge=4, le=128)] = 32
    """Most rows that one execution takes."""
    max_delay_ms: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 0
    """Longest that an idle engine waits for more rows, in ms. 0: never waits."""
    min_batch_size: Annotated[int, msgspec.Meta(ge=1, le=128)] = 1
    """Rows at which a waiting batch leaves at once."""
    prefetch_queue_depth: Annotated[int, msgspec.Meta(ge=2, le=32)] = 8
    """Most batches that may be assembled ahead of execution."""
    tensor_cache: bool = True
    """Reuse input and output buffers between executions."""


class QueuePolicy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How long a queue may grow and how long a request may wait in it. Times in ms, lengths in rows."""

    max_rows: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    """Most rows that wait, shared by the workers; one more is refused with 503. 0: as many as each takes."""
    default_timeout_ms: Annotated[float, msgspec.Meta(ge=0, le=3_600_000)] = 0.0
    """Deadline of a request that names none, from its arrival. 0: only the limit of the process counts."""
    max_timeout_ms: Annotated[float, msgspec.Meta(ge=0, le=3_600_000)] = 0.0
    """A request that asks for longer gets this. 0: only the limit of the process counts."""
    timeout_action: Literal["Reject", "Delay"] = "Reject"
    """Reject: answered with 504 when its time is over. Delay: served after all that are still in time."""


class Priorities(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Priority levels: 1 is served first. A request that names none, or 0, has the default."""

    levels: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10
    default: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    """0: the level in the middle, the upper one of two; it is filled in."""
    queues: dict[int, QueuePolicy] = {}
    """Per level a policy that replaces the model's."""

    def __post_init__(self) -> None:
        """Fill in the default level."""
        if not self.default:
            msgspec.structs.force_setattr(self, "default", (self.levels + 1) // 2)


class Tenant(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A tenant and its share of execution time under contention, relative to the other weights."""

    tenant_id: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
    weight: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1


class WarmUpTensor(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One input of a warm-up sample: zeros (or empty texts), unless it says otherwise."""

    shape: tuple[Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)], ...] = ()
    """Without the rows, if the sample has `rows`."""
    random: bool = False
    """Random numbers in place of zeros."""
    file: str | None = None
    """A file with its elements: little-endian, row-major; each text after its length in bytes as uint32."""


class WarmUpSample(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request that a version must run before it serves."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    """For messages."""
    inputs: dict[str, WarmUpTensor]
    """Each input of the model by its name."""
    rows: Annotated[int, msgspec.Meta(ge=0, le=4_096)] = 0
    """Each input is repeated so often along a first dimension; 0: the shapes are whole."""
    runs: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1


class Execution(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How batches run."""

    instances: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Executions of the model at the same time in one process."""
    padded_batch_sizes: tuple[Annotated[int, msgspec.Meta(ge=1, le=4_096)], ...] = ()
    """A batch is filled up with zero rows to the next of these sizes; growing. Empty: never."""
    max_rows: Annotated[int, msgspec.Meta(ge=0, le=4_096)] | None = None
    """Replaces `batching.maxBatchSize`, for repositories of other servers; 0: requests never share a run."""
    warm_up: Annotated[tuple[WarmUpSample, ...], msgspec.Meta(max_length=64)] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    """Run by each version before it serves, after the sizes that batches will have."""


class ServedVersion(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One version of the model and its share of the traffic."""

    version_id: Annotated[str, msgspec.Meta(min_length=1)]
    path: Annotated[str, msgspec.Meta(min_length=1)]
    """A file that the runtime can open."""
    weight: Annotated[int, msgspec.Meta(ge=0, le=100)] = 100
    """Percent of the requests that name no version."""
    sha256: str | None = None
    """Digest of the file in lower-case hex; checked at load when given."""
    labels: tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=63)], ...] = ()
    """Names such as `stable` by which requests may ask for it, whatever its id is."""
    uri: str | msgspec.UnsetType = msgspec.UNSET
    """Where `path` comes from, for people."""
    owner_email: str | msgspec.UnsetType = msgspec.UNSET
    """Who answers for the version, for people."""


class ServingConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """All that one runtime process serves. `revision` only grows."""

    model: Annotated[str, msgspec.Meta(min_length=1)]
    versions: Annotated[tuple[ServedVersion, ...], msgspec.Meta(min_length=1, max_length=MAX_VERSIONS)]
    batching: Batching = Batching()
    queue: QueuePolicy = QueuePolicy()
    priorities: Priorities = Priorities()
    tenants: tuple[Tenant, ...] = ()
    """Tenants that are not named here share the weight 1."""
    execution: Execution = Execution()
    allow_incompatible: bool = False
    """Serve versions though their inputs or outputs differ from those of the version that is served."""
    revision: Annotated[int, msgspec.Meta(ge=1, le=MAX_REVISION)] = 1
    stopped: bool | msgspec.UnsetType = msgspec.UNSET
    """The last revision: drain, report, and serve no more. Absent in all others."""


def same_scheduling(one: ServingConfig, other: ServingConfig) -> bool:
    """Return whether requests meet the same rules by both."""
    return one == msgspec.structs.replace(
        other,
        versions=one.versions,
        revision=one.revision,
        allow_incompatible=one.allow_incompatible,
    )


def single_version(path: str, batching: Batching) -> ServingConfig:
    """Return the configuration of the quick start: one file, named after itself, as version ``1``.

    Raises:
        InvalidResourceError: the file's name cannot be that of a model.

    """
    name = PurePosixPath(path).stem
    check_name("model", name)
    return ServingConfig(
        model=name,
        versions=(ServedVersion(version_id="1", path=path),),
        batching=batching,
    )


def as_utf8(document: bytes) -> bytes:
    """Return JSON as UTF-8 without a byte order mark, which editors of Windows write, in UTF-16 as well.

    Raises:
        UnicodeDecodeError: it begins like UTF-16 or UTF-32, and is not.

    """
    encoding = json.detect_encoding(document)
    return document if encoding == "utf-8" else document.decode(encoding).encode()


def decode_serving_config(document: bytes) -> ServingConfig:
    """Parse a serving configuration from JSON.

    Raises:
        InvalidResourceError: the document is not JSON, lacks a field, or has a value out of its range.

    """
    try:
        decoded = msgspec.json.decode(as_utf8(document))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # a number that no double holds is one too
        raise InvalidResourceError("serving configuration", str(error), "one JSON object") from error
    except RecursionError as error:
        raise InvalidResourceError(
            "serving configuration", "is nested too deeply", "one JSON object"
        ) from error
    try:
        config = msgspec.convert(decoded, ServingConfig, str_keys=True)
    except msgspec.ValidationError as error:
        raise explain(error, decoded, ServingConfig, "servingConfig") from error
    check_name("model", config.model)
    for position, version in enumerate(config.versions):
        check_name(f"versions[{position}].versionId", version.version_id)
    total = sum(version.weight for version in config.versions)
    if total != 100:
        raise InvalidResourceError("versions[].weight", f"the weights sum to {total}", "a sum of exactly 100")
    ids = [version.version_id for version in config.versions]
    if len(set(ids)) != len(ids):
        raise InvalidResourceError("versions[].versionId", f"{ids} has a repeated id", "each id once")
    names = [*ids, *(label for version in config.versions for label in version.labels)]
    if len(set(names)) != len(names):
        raise InvalidResourceError(
            "versions[].labels", f"{names} has a repeated name", "each label and id once"
        )
    _check_scheduling(config)
    return config


def _check_scheduling(config: ServingConfig) -> None:
    levels = config.priorities.levels
    for field, level in [
        ("default", config.priorities.default),
        *(("queues", q) for q in config.priorities.queues),
    ]:
        check_range(f"priorities.{field}", level, (1, levels))
    tenants = [tenant.tenant_id for tenant in config.tenants]
    if len(set(tenants)) != len(tenants):
        raise InvalidResourceError("tenants[].tenantId", f"{tenants} has a repeated id", "each id once")
    sizes = config.execution.padded_batch_sizes
    if list(sizes) != sorted(set(sizes)):
        raise InvalidResourceError(
            "execution.paddedBatchSizes", f"{list(sizes)} does not grow", "growing sizes"
        )


def encode_serving_config(config: ServingConfig) -> bytes:
    """Return `config` as JSON with a stable order of keys, so that equal configurations are equal bytes."""
    return msgspec.json.encode(msgspec.to_builtins(config, str_keys=True), order="sorted")


def check_name(field: str, name: str) -> None:
    """Raise `InvalidResourceError` unless `name` can be a segment of a path, a line of a log and a label."""
    if not name or not name.isprintable() or "/" in name or len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidResourceError(
            field,
            f"{name[:MAX_NAME_BYTES]!r} is no name",
            f"1 to {MAX_NAME_BYTES} bytes of printable characters other than /",
        )


def check_range(field: str, value: float, allowed: tuple[int, int]) -> None:
    """Raise `InvalidResourceError`, naming the range, unless `value` lies in `allowed` (ends included)."""
    low, high = allowed
    if not (math.isfinite(value) and low <= value <= high):
        raise InvalidResourceError(field, f"{value} is out of range", f"{low} to {high}")
