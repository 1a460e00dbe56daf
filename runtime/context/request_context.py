"""The context of one request, from its headers or its gRPC metadata."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from mcp2026.api.names import QOS_CLASS_HEADER, SLA_TOKEN_HEADER, TRACE_HEADER
from mcp2026.api.scheduling_context import (
    QosClass,
    SchedulingContext,
    SlaClaims,
    SlaRefusal,
    TraceContext,
    continued_trace,
    new_id,
    sampled_by_ratio,
)
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.metrics.families import SLA_VERIFIED

_TRACE: Final = TRACE_HEADER.encode()
_STATE: Final = b"tracestate"
_TOKEN: Final = SLA_TOKEN_HEADER.encode()
_CLASS: Final = QOS_CLASS_HEADER.encode()
_CLASSES: Final = {one.value.encode(): one for one in QosClass}


class Tokens(Protocol):
    """What judges tokens."""

    def check(self, token: bytes | None) -> SlaClaims | SlaRefusal:
        """Return the claims of `token`, or why it is not taken. Never raises."""


class RequestContexts:
    """Reads contexts. Without keys and spans, a request without a trace has none and costs one look-up."""

    def __init__(
        self,
        tokens: Tokens | None = None,
        *,
        reject: bool = False,
        own_class: QosClass | None = None,
        trace_ratio: float | None = None,
        count_token: Callable[[str], None] = lambda _result: None,
    ) -> None:
        """Check tokens by `tokens`; None: they are not looked at.

        `reject` answers a request without a good token with 401; else it is served last. `own_class` is that
        of the pod, for requests that name none. `trace_ratio` of the traces that begin here are sampled;
        None: spans are off, so none is. `count_token` is told ``verified`` or the reason of a refusal.
        """
        self._tokens = tokens
        self._reject = reject
        self._own_class = own_class
        self._ratio = trace_ratio
        self._count = count_token
        self._every = tokens is not None or trace_ratio is not None

    def of(self, headers: Mapping[bytes, bytes]) -> SchedulingContext | None:
        """Return the context in `headers`, whose names are in lower case; None if nothing is carried."""
        if self._every or _TRACE in headers:
            return self._read(headers)
        return None

    def admit(self, context: SchedulingContext) -> None:
        """Let a request pass whose token is good, or need not be.

        Raises:
            RequestError: its token is not taken, and such requests are rejected.

        """
        if self._reject and context.refusal is not None:
            raise RequestError(
                ErrorCode.UNAUTHENTICATED,
                f"{SLA_TOKEN_HEADER}: {context.refusal}",
                SLA_TOKEN_HEADER,
                "a token of the policy engine for this pod that holds now",
            )

    def trace_of(self, headers: Mapping[bytes, bytes]) -> TraceContext:
        """Return the trace in `headers`, or a new one."""
        header = headers.get(_TRACE)
        trace = continued_trace(header, headers.get(_STATE, b"")) if header else None
        return trace or self.new_trace()

    def new_trace(self) -> TraceContext:
        """Return a trace that begins here."""
        trace_id = new_id(32)
        sampled = self._ratio is not None and sampled_by_ratio(trace_id, self._ratio)
        return TraceContext(trace_id, new_id(16), sampled=sampled)

    def _read(self, headers: Mapping[bytes, bytes]) -> SchedulingContext:
        trace = self.trace_of(headers)
        named = _CLASSES.get(headers.get(_CLASS, b""))
        if self._tokens is None:
            return SchedulingContext(trace, named or self._own_class)
        checked = self._tokens.check(headers.get(_TOKEN))
        if isinstance(checked, SlaClaims):
            self._count(SLA_VERIFIED)
            return SchedulingContext(trace, checked.qos_class, checked)
        self._count(checked.value)
        return SchedulingContext(trace, QosClass.BEST_EFFORT, refusal=checked)
