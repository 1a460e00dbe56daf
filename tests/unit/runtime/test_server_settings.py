"""Flags, environment and serving configuration become one checked object."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from mcp2026.api.batching_negotiation import BatchingOffer
from mcp2026.api.errors import SettingsError
from mcp2026.runtime.process.control import Start, receive_from_parent
from mcp2026.runtime.protocol.http2.limits import Http2Limits
from mcp2026.runtime.settings_reading import read_settings

MODEL = ("--model-path", "m.onnx")


def test_clients_may_change_versions_without_a_repository() -> None:
    settings = read_settings([*MODEL, "--model-control", "explicit"], {})
    assert (settings.model_control, settings.model_repository) == ("explicit", None)


def test_the_quick_start_needs_only_a_model() -> None:
    settings = read_settings(["--model-path", "./models/resnet50.onnx", "--workers", "4"], {})
    assert (settings.host, settings.port, settings.workers) == ("localhost", 8080, 4)
    assert settings.models[0].model == "resnet50"
    batching = settings.models[0].batching
    assert (batching.max_batch_size, batching.prefetch_queue_depth, batching.tensor_cache) == (32, 8, True)


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        pytest.param([], {}, "exactly one", id="nothing to serve"),
        pytest.param([*MODEL, "--serving-config", "x"], {}, "exactly one", id="two things to serve"),
        pytest.param([*MODEL, "--workers", "x"], {}, "--workers: 'x' is not a whole number", id="no number"),
        pytest.param([*MODEL], {"MCP2026_WORKERS": "99"}, "MCP2026_WORKERS: 99", id="by the environment"),
        pytest.param([*MODEL, "--max-batch-size", "256"], {}, "from 4 to 128", id="batch too large"),
        pytest.param([*MODEL, "--max-delay-ms", "-1"], {}, "from 0 to 65535", id="negative delay"),
        pytest.param(
            [*MODEL, "--max-batch-size", "8", "--min-batch-size", "9"], {}, "1 to 8", id="min over max"
        ),
        pytest.param([*MODEL, "--queue-size", "31"], {}, "32 to", id="queue below one batch"),
        pytest.param([*MODEL, "--request-timeout", "nan"], {}, "from 0 to 3600", id="not a number"),
        pytest.param([*MODEL, "--request-timeout", "0"], {}, "more than 0", id="zero timeout"),
        pytest.param([*MODEL, "--log-format", "xml"], {}, "text, json", id="unknown format"),
        pytest.param([*MODEL, "--provider", "tpu"], {}, "auto, cpu, cuda, tensorrt", id="unknown provider"),
        pytest.param([*MODEL, "--nothing"], {}, "--nothing", id="unknown flag"),
        pytest.param([*MODEL, "--negotiate-delay-ms", "65536"], {}, "from 0 to 65535", id="offered delay"),
        pytest.param([*MODEL, "--negotiate-min-size", "0"], {}, "from 1 to 255", id="offered size"),
        pytest.param([*MODEL, "--http2-resets", "1"], {}, "from 10 to", id="no resets at all"),
        pytest.param([*MODEL], {"MCP2026_HTTP2_STREAMS": "0"}, "MCP2026_HTTP2_STREAMS: 0", id="no streams"),
        pytest.param(["--serving-config", "/nowhere"], {}, "No such file", id="no configuration"),
        pytest.param([*MODEL, "--load-model", "m"], {}, "--load-model: needs", id="models of no repository"),
        pytest.param(
            ["--model-repository", "r", "--max-batch-size", "8"],
            {},
            "--max-batch-size: does not apply to a repository; allowed: max_batch_size in config.pbtxt",
            id="a flag that a repository overrules",
        ),
    ],
)
def test_what_is_not_accepted_is_named(arguments: list[str], environment: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError) as error:
        read_settings(arguments, environment)
    assert words in str(error.value)


def test_a_flag_wins_over_the_environment_over_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "serving.json"
    batching = {"maxBatchSize": 16, "minBatchSize": 2, "maxDelayMs": 5, "tensorCache": False}
    versions = [{"versionId": "v1", "path": "m.onnx"}]
    config.write_text(json.dumps({"model": "m", "versions": versions, "batching": batching}))
    settings = read_settings(
        ["--serving-config", str(config), "--max-batch-size", "64"],
        {"MCP2026_MAX_BATCH_SIZE": "8", "MCP2026_MAX_DELAY_MS": "7", "MCP2026_LOG_FORMAT": "json"},
    )
    result = settings.models[0].batching
    assert (result.max_batch_size, result.max_delay_ms, result.min_batch_size) == (64, 7, 2)
    assert result.tensor_cache is False
    assert settings.log_format == "json"


def test_what_to_serve_can_come_from_the_environment_and_a_flag_overrides_it(tmp_path: Path) -> None:
    assert read_settings([], {"MCP2026_MODEL_PATH": "a.onnx"}).models[0].model == "a"
    both = {"MCP2026_SERVING_CONFIG": str(tmp_path / "missing")}
    assert read_settings(list(MODEL), both).models[0].model == "m"


def test_what_the_server_offers_to_negotiate() -> None:
    assert read_settings(MODEL, {}).offer == BatchingOffer(50, 3)
    chosen = read_settings([*MODEL, "--negotiate-delay-ms", "0"], {"MCP2026_NEGOTIATE_MIN_SIZE": "255"})
    assert chosen.offer == BatchingOffer(0, 255)
    assert read_settings([*MODEL, "--no-negotiation"], {}).offer is None
    assert read_settings(MODEL, {"MCP2026_NEGOTIATION": "false"}).offer is None


def test_what_one_client_may_ask_of_a_connection() -> None:
    assert read_settings(MODEL, {}).http2_limits == Http2Limits()
    flags = ["--http2-streams", "9", "--http2-resets", "10", "--http2-resets-per-second", "0.5"]
    flags += ["--http2-settings", "20", "--http2-settings-per-second", "2", "--http2-idle-frames", "30"]
    flags += ["--http2-idle-frames-per-second", "3", "--max-header-kib", "8", "--max-headers", "16"]
    limits = read_settings([*MODEL, *flags], {}).http2_limits
    assert (limits.max_streams, limits.resets, limits.resets_per_second) == (9, 10, 0.5)
    assert (limits.settings_frames, limits.settings_frames_per_second) == (20, 2.0)
    assert (limits.idle_frames, limits.idle_frames_per_second) == (30, 3.0)
    assert (limits.max_header_bytes, limits.max_headers) == (8_192, 16)


async def test_a_worker_gets_exactly_the_parents_settings() -> None:
    settings = read_settings([*MODEL, "--no-tensor-cache", "--lame-duck-seconds", "2.5"], {})
    wire = asyncio.StreamReader()
    wire.feed_data(
        msgspec.json.encode(Start(settings, 0, settings.models, (), [], [], 0, listen_first=True)) + b"\n"
    )
    told = await receive_from_parent(wire)
    assert isinstance(told, Start)
    assert told.settings == settings
    assert settings.models[0].batching.tensor_cache is False


def test_the_variables_of_a_kubernetes_service_are_not_taken_for_ours() -> None:
    links = {"MCP2026_PORT": "tcp://10.0.0.1:80", "MCP2026_METRICS_PORT": "tcp://10.0.0.2:8082"}
    settings = read_settings(list(MODEL), links)
    assert (settings.port, settings.metrics_port) == (8080, None)
