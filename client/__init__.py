"""The Python client of MCP 2026: one surface, blocking and asyncio, over HTTP/1.1, HTTP/2 and gRPC.

It speaks the Open Inference Protocol, so Triton and KServe answer it as well.
"""

from mcp2026.api.batching_negotiation import BatchingOffer, NegotiatedBatching
from mcp2026.client.asynchronous.client import AsyncClient
from mcp2026.client.blocking.client import Client
from mcp2026.client.datatypes import Tensor
from mcp2026.client.errors import (
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    ProtocolError,
    ServerError,
)
from mcp2026.client.operations.inference import InferenceResult
from mcp2026.client.operations.models import ModelMetadata, ModelState, TensorMetadata
from mcp2026.client.operations.versions import RegisteredVersion, RetiredVersion
from mcp2026.client.retries import RetryPolicy

__all__ = [
    "AsyncClient",
    "BatchingOffer",
    "Client",
    "ClientError",
    "ConnectionFailedError",
    "DeadlineExceededError",
    "InferenceResult",
    "InvalidRequestError",
    "ModelMetadata",
    "ModelNotFoundError",
    "ModelState",
    "NegotiatedBatching",
    "OverloadedError",
    "ProtocolError",
    "RegisteredVersion",
    "RetiredVersion",
    "RetryPolicy",
    "ServerError",
    "Tensor",
    "TensorMetadata",
]
