"""What a runtime process is told to serve: by the operator in a cluster, by `mcp2026 local` elsewhere.

One immutable document per revision. In a cluster it is a ConfigMap mounted into the pod, locally a file.
"""

import math
from pathlib import PurePosixPath
from typing import Annotated

import msgspec

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.schema_errors import explain

MAX_BATCH_SIZE_RANGE = (4, 128)
PREFETCH_QUEUE_DEPTH_RANGE = (2, 32)
MAX_DELAY_MS_RANGE = (0, 65_535)
MIN_BATCH_SIZE_RANGE = (1, 128)


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


class ServedVersion(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One version of the model and its share of the traffic."""

    version_id: str
    path: str
    """A file that the runtime can open."""
    weight: Annotated[int, msgspec.Meta(ge=0, le=100)] = 100
    """Percent of the requests that name no version."""
    sha256: str | None = None
    """Digest of the file in lower-case hex; checked at load when given."""


class ServingConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """All that one runtime process serves. `revision` only grows."""

    model: str
    versions: Annotated[tuple[ServedVersion, ...], msgspec.Meta(min_length=1, max_length=16)]
    batching: Batching = Batching()
    revision: Annotated[int, msgspec.Meta(ge=1)] = 1


def single_version(path: str, batching: Batching) -> ServingConfig:
    """Return the configuration of the quick start: one file, named after itself, as version ``1``."""
    return ServingConfig(
        model=PurePosixPath(path).stem,
        versions=(ServedVersion(version_id="1", path=path),),
        batching=batching,
    )


def decode_serving_config(document: bytes) -> ServingConfig:
    """Parse a serving configuration from JSON.

    Raises:
        InvalidResourceError: the document is not JSON, lacks a field, or has a value out of its range.

    """
    try:
        decoded = msgspec.json.decode(document)
        config = msgspec.convert(decoded, ServingConfig)
    except msgspec.ValidationError as error:
        raise explain(error, decoded, ServingConfig, "servingConfig") from error
    except msgspec.DecodeError as error:
        raise InvalidResourceError("serving configuration", str(error), "one JSON object") from error
    except RecursionError as error:
        raise InvalidResourceError(
            "serving configuration", "is nested too deeply", "one JSON object"
        ) from error
    total = sum(version.weight for version in config.versions)
    if total != 100:
        raise InvalidResourceError("versions[].weight", f"the weights sum to {total}", "a sum of exactly 100")
    ids = [version.version_id for version in config.versions]
    if len(set(ids)) != len(ids):
        raise InvalidResourceError("versions[].versionId", f"{ids} has a repeated id", "each id once")
    return config


def encode_serving_config(config: ServingConfig) -> bytes:
    """Return `config` as JSON with a stable order of keys, so that equal configurations are equal bytes."""
    return msgspec.json.encode(config, order="sorted")


def check_range(field: str, value: float, allowed: tuple[int, int]) -> None:
    """Raise `InvalidResourceError`, naming the range, unless `value` lies in `allowed` (ends included)."""
    low, high = allowed
    if not (math.isfinite(value) and low <= value <= high):
        raise InvalidResourceError(field, f"{value} is out of range", f"{low} to {high}")
