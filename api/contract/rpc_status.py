"""Errors of gRPC calls: `mcp2026.v1.Error` as the detail of a `google.rpc.Status`.

It travels in the trailer `grpc-status-details-bin`, whose value gRPC encodes in base64.
Source: https://github.com/googleapis/googleapis/blob/master/google/rpc/status.proto
"""

from typing import NamedTuple

from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # it comes without types

from mcp2026.api.contract.native_pb2 import Error

TRAILER = "grpc-status-details-bin"


class ErrorDetail(NamedTuple):
    """What `Error` of the contract says."""

    code: str
    message: str
    field: str | None = None
    rule: str | None = None
    allowed: str | None = None


def encode_status(grpc_code: int, error: ErrorDetail) -> bytes:
    """Return the status of a call that failed with `grpc_code`, a number of `grpc.StatusCode`."""
    status = Status(code=grpc_code, message=error.message)
    status.details.add().Pack(
        Error(**{name: value for name, value in error._asdict().items() if value is not None})
    )
    encoded: bytes = status.SerializeToString(deterministic=True)
    return encoded


def decode_status(encoded: bytes) -> ErrorDetail | None:
    """Return the error in a status; None if it has none of ours, or is no status at all."""
    try:
        status = Status.FromString(encoded)
    except DecodeError:
        return None
    error = Error()
    for detail in status.details:
        if detail.Is(Error.DESCRIPTOR):
            try:
                detail.Unpack(error)
            except DecodeError:
                return None
            return ErrorDetail(
                error.code,
                error.message,
                *(
                    getattr(error, name) if error.HasField(name) else None
                    for name in ("field", "rule", "allowed")
                ),
            )
    return None
