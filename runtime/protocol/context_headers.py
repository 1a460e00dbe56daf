"""The context of a request in its answer: the same names as headers of HTTP and as metadata of gRPC."""

from collections.abc import Mapping
from typing import Final

import msgspec

from mcp2026.api.names import QOS_CLASS_HEADER, TRACE_HEADER
from mcp2026.api.scheduling_context import SchedulingContext, continued_trace, new_trace
from mcp2026.runtime.protocol.exchange import Respond, Response
from mcp2026.runtime.protocol.grpc.service import Reply
from mcp2026.runtime.protocol.grpc.service import Respond as RespondToCall

_TRACE: Final = TRACE_HEADER.encode()
_CLASS: Final = QOS_CLASS_HEADER.encode()

Fields = tuple[tuple[bytes, bytes], ...]


def context_fields(context: SchedulingContext | None) -> Fields:
    """Return what an answer says of `context`; of None, a trace that begins with this answer."""
    trace = context.trace if context is not None else new_trace()
    field = (_TRACE, trace.traceparent.encode())
    if context is None or context.qos_class is None:
        return (field,)
    return field, (_CLASS, context.qos_class.value.encode())


def failure_fields(more: Fields, headers: Mapping[bytes, bytes]) -> Fields:
    """Return `more`, with which a call fails, and its trace if that is missing: the caller's or a new one."""
    if any(name == _TRACE for name, _ in more):
        return more
    header = headers.get(_TRACE)
    trace = (continued_trace(header) if header else None) or new_trace()
    return *more, (_TRACE, trace.traceparent.encode())


def in_trace_of(headers: Mapping[bytes, bytes], refusal: Response) -> Response:
    """Return `refusal` with the trace in the `headers` of its request, if they have one."""
    header = headers.get(_TRACE)
    if header is None or continued_trace(header) is None:
        return refusal
    rest = tuple([field for field in refusal.headers if field[0] != _TRACE])
    return msgspec.structs.replace(refusal, headers=failure_fields(rest, headers))


def carrying(respond: Respond, context: SchedulingContext) -> Respond:
    """Return what sends a good response with `context`; errors have it already."""

    def respond_with_context(response: Response) -> None:
        if response.status < 400:
            headers = (*response.headers, *context_fields(context))
            response = msgspec.structs.replace(response, headers=headers)
        respond(response)

    return respond_with_context


def carrying_reply(respond: RespondToCall, context: SchedulingContext) -> RespondToCall:
    """Return what sends a good reply with `context` in its trailers; errors have it already."""

    def respond_with_context(reply: Reply) -> None:
        if not reply.code:
            reply = msgspec.structs.replace(reply, trailers=(*reply.trailers, *context_fields(context)))
        respond(reply)

    return respond_with_context
