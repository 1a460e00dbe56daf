"""What the blocking and the asyncio client have in common: settings, and questions made of arguments."""

import random
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy.typing as npt

from mcp2026.api.batching_negotiation import BatchingOffer
from mcp2026.api.names import TRACE_HEADER
from mcp2026.client.addresses import parse_address
from mcp2026.client.datatypes import Tensor
from mcp2026.client.errors import InvalidRequestError
from mcp2026.client.exchange import Header, Operation
from mcp2026.client.negotiation import offer_of
from mcp2026.client.operations.inference import Inference
from mcp2026.client.operations.models import AskReady, DescribeModel, ListModels
from mcp2026.client.operations.versions import RegisterVersion, RetireVersion
from mcp2026.client.retries import Attempts, RetryBudget, RetryPolicy
from mcp2026.client.trace_context import traceparent

DEFAULT_TIMEOUT: Final = 30.0
"""Of a call that names none, in s."""
DEFAULT_CONNECTIONS: Final = 16
DEFAULT_ANSWER_BYTES: Final = 2**30
_LONGEST_TIMEOUT = 24 * 3_600.0

_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_OURS = frozenset(
    ("host", "content-length", "content-type", "transfer-encoding", "connection", "te", "expect", "upgrade")
)


class Calls:
    """The arguments of a client, checked, and the questions of its calls."""

    def __init__(
        self,
        url: str,
        *,
        http2: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
        batching: BatchingOffer | bool | None = None,
        retry: RetryPolicy | None = None,
        headers: Mapping[str, str] | None = None,
        max_connections: int = DEFAULT_CONNECTIONS,
        max_answer_bytes: int = DEFAULT_ANSWER_BYTES,
    ) -> None:
        if max_connections < 1:
            raise ValueError(f"max_connections: {max_connections} is out of range; allowed: from 1")
        if max_answer_bytes < 1:
            raise ValueError(f"max_answer_bytes: {max_answer_bytes} is out of range; allowed: from 1")
        self.address = parse_address(url, http2=http2)
        self.offer = offer_of(batching, self.address.transport)
        self.max_connections = max_connections
        self.max_answer_bytes = max_answer_bytes
        self._timeout = _checked_timeout(timeout)
        self._policy = retry or RetryPolicy()
        self._budget = RetryBudget(self._policy.budget_ratio, self._policy.budget_reserve)
        self._headers = tuple(_checked_header(name, value) for name, value in (headers or {}).items())

    def attempts(self, operation: Operation[Any], timeout: float | None) -> Attempts:
        """Begin a call that may take `timeout` s, or as long as the client's own says."""
        return Attempts(
            self._policy,
            self._budget,
            self._timeout if timeout is None else _checked_timeout(timeout),
            time.monotonic(),
            idempotent=operation.idempotent,
            random=random.random,
        )

    def inference(
        self,
        inputs: Mapping[str, npt.ArrayLike | Tensor],
        *,
        model: str,
        version: str | None,
        outputs: Sequence[str] | None,
        priority: int | None,
        tenant: str | None,
        request_id: str | None,
        traceparent_given: str | None,
        batchable: bool,
    ) -> Inference:
        """Return the question for an inference."""
        _check_names(model=model, version=version)
        if isinstance(outputs, str):
            raise InvalidRequestError(
                f"outputs: {outputs!r} is one text", field="outputs", allowed=f"a list: [{outputs!r}]"
            )
        return Inference(
            inputs,
            model=model,
            version=version,
            outputs=tuple(outputs or ()),
            priority=priority,
            tenant=tenant,
            request_id=request_id or "",
            headers=self._traced(traceparent_given),
            batchable=batchable,
        )

    def list_models(self) -> ListModels:
        """Return the question for all models."""
        return ListModels(self._traced())

    def describe(self, model: str, version: str | None) -> DescribeModel:
        """Return the question for one model."""
        _check_names(model=model, version=version)
        return DescribeModel(model, version, self._traced())

    def ask_ready(self, model: str | None, version: str | None) -> AskReady:
        """Return the question whether the server, or a model, is ready."""
        _check_names(model=model, version=version)
        return AskReady(model, version, self._traced())

    def register(
        self,
        model: str,
        version: str,
        uri: str,
        *,
        weight: int,
        owner_email: str,
        request_id: str | None,
    ) -> RegisterVersion:
        """Return the wish that a version be served."""
        _check_names(model=model, version=version)
        return RegisterVersion(
            model,
            version,
            uri,
            weight=weight,
            owner_email=owner_email,
            request_id=request_id,
            headers=self._traced(),
        )

    def retire(self, model: str, version: str) -> RetireVersion:
        """Return the wish that a version be served no more."""
        _check_names(model=model, version=version)
        return RetireVersion(model, version, self._traced())

    def _traced(self, given: str | None = None) -> tuple[Header, ...]:
        trace = traceparent(given)
        return self._headers if trace is None else (*self._headers, (TRACE_HEADER, trace))


def _check_names(**names: object) -> None:
    """Refuse what is no text, above all the numbers that versions often look like."""
    for field, name in names.items():
        if not isinstance(name, str | None):
            raise InvalidRequestError(
                f"{field}: {name!r} is no text", field=field, allowed=f"a text, such as {str(name)!r}"
            )


def _checked_timeout(timeout: float) -> float:
    if not 0 < timeout <= _LONGEST_TIMEOUT:
        raise InvalidRequestError(
            f"timeout: {timeout} s is out of range", field="timeout", allowed="above 0 to a day, in s"
        )
    return float(timeout)


def _checked_header(name: str, value: str) -> Header:
    lower = name.lower()
    if not _NAME.fullmatch(lower) or lower in _OURS or lower.startswith("grpc-"):
        raise ValueError(f"headers: {name!r} is no header of a caller's own")
    if not _VALUE.fullmatch(value):
        raise ValueError(f"headers: the value of {name!r} is not printable ASCII")
    return lower, value
