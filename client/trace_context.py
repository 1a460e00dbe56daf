"""The `traceparent` that a request carries (W3C Trace Context): given, or that of the current span.

OpenTelemetry is asked only where the program has imported it already: a client that nobody traces does not
spend the time and memory of importing it.
"""

import re
import sys

from mcp2026.client.errors import InvalidRequestError

_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]*)?")


def traceparent(given: str | None) -> str | None:
    """Return what a request shall carry, None for nothing.

    Raises:
        InvalidRequestError: `given` is no traceparent.

    """
    if given is None:
        return _of_current_span()
    if not _FORM.fullmatch(given):
        raise InvalidRequestError(
            f"traceparent: {given[:64]!r} is malformed",
            field="traceparent",
            allowed="00-<32 hexadecimal digits>-<16 hexadecimal digits>-<2 hexadecimal digits>, lower case",
        )
    return given


def _of_current_span() -> str | None:
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
