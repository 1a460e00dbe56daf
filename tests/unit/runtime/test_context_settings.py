"""Which settings of traces, tokens and log lines go together."""

import pytest

from mcp2026.api.errors import SettingsError
from mcp2026.runtime.settings_reading import read_settings

MODEL = ("--model-path", "m.onnx")
KEYS = (*MODEL, "--sla-keys", "/etc/keys.json")


def test_nothing_is_looked_at_sent_or_written_unless_that_is_asked_for() -> None:
    settings = read_settings(MODEL, {})
    assert settings.sla_keys is settings.otlp_endpoint is settings.slow_request_ms is None
    assert not settings.request_log


def test_a_pod_says_its_uid_and_its_class_by_the_environment() -> None:
    settings = read_settings(KEYS, {"MCP2026_POD_UID": "u-1", "MCP2026_QOS_CLASS": "Burstable"})
    assert (settings.sla_keys, settings.pod_uid, settings.qos_class) == (
        "/etc/keys.json",
        "u-1",
        "Burstable",
    )
    assert (settings.sla_audience, settings.sla_policy) == ("mcp2026-runtime", "lowest")


@pytest.mark.parametrize(
    ("arguments", "environment", "endpoint"),
    [
        ([], {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318"}, "http://a:4318"),
        (
            [],
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318", "MCP2026_OTLP_ENDPOINT": "http://b"},
            "http://b",
        ),
        (["--otlp-endpoint", "http://c"], {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318"}, "http://c"),
        ([], {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None),
    ],
)
def test_the_variable_of_opentelemetry_holds_unless_we_are_told_otherwise(
    arguments: list[str], environment: dict[str, str], endpoint: str | None
) -> None:
    assert read_settings([*MODEL, *arguments], environment).otlp_endpoint == endpoint


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (KEYS, {}, "--sla-keys: needs the pod that tokens must be for; allowed: --pod-uid"),
        (
            [*MODEL, "--sla-keys", "ftp://a/keys", "--pod-uid", "u"],
            {},
            "--sla-keys: 'ftp://a/keys' is no URL",
        ),
        ([*MODEL, "--sla-keys", "https:///keys", "--pod-uid", "u"], {}, "--sla-keys: 'https:///keys' is no"),
        ([*MODEL, "--sla-keys", "http://a:x/keys", "--pod-uid", "u"], {}, "is no URL"),
        ([*MODEL, "--otlp-endpoint", "collector:4318"], {}, "--otlp-endpoint: 'collector:4318' is no URL"),
        (MODEL, {"OTEL_EXPORTER_OTLP_ENDPOINT": "nonsense"}, "OTEL_EXPORTER_OTLP_ENDPOINT: 'nonsense'"),
        ([*MODEL, "--trace-ratio", "1.5"], {}, "from 0 to 1"),
        ([*MODEL, "--sla-policy", "maybe"], {}, "lowest, reject"),
        (MODEL, {"MCP2026_QOS_CLASS": "best"}, "MCP2026_QOS_CLASS: 'best' is not known"),
        ([*MODEL, "--slow-request-ms", "-1"], {}, "--slow-request-ms: -1 is out of range"),
    ],
)
def test_what_is_not_accepted_is_named(arguments: list[str], environment: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings(arguments, environment)
    assert said in str(refused.value)
