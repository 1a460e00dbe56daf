"""A request carries the trace that it is given, or the current span's, without importing OpenTelemetry."""

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from mcp2026.client.errors import InvalidRequestError
from mcp2026.client.trace_context import traceparent

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_what_is_given_is_sent() -> None:
    assert traceparent(GIVEN) == GIVEN
    assert traceparent("01" + GIVEN[2:] + "-more") == "01" + GIVEN[2:] + "-more"


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        GIVEN.upper(),
        GIVEN[:-1],
        "ff" + GIVEN[2:],
        "00-" + "0" * 32 + GIVEN[35:],
        GIVEN[:36] + "0" * 16 + "-01",
        GIVEN + "\r\nx: y",
        " " + GIVEN,
    ],
)
def test_what_is_malformed_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidRequestError, match="is malformed") as refused:
        traceparent(wrong)
    assert refused.value.field == "traceparent"


def test_the_current_span_is_sent_if_there_is_one() -> None:
    assert traceparent(None) is None
    tracer = TracerProvider().get_tracer("test")
    with trace.use_span(tracer.start_span("s")) as span:
        trace_id, span_id, _, flags, *_ = span.get_span_context()
        assert traceparent(None) == f"00-{trace_id:032x}-{span_id:016x}-{flags:02x}"
        assert traceparent(GIVEN) == GIVEN


def test_the_client_does_not_import_opentelemetry() -> None:
    code = (
        "import sys, mcp2026.client.trace_context as c, mcp2026.client\n"
        "assert c.traceparent(None) is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
