"""The document between operator and runtime: equal content is equal bytes, and no bad one is accepted."""

import json
from typing import Any

import pytest

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.serving import (
    Batching,
    Priorities,
    QueuePolicy,
    ServedVersion,
    ServingConfig,
    Tenant,
    check_range,
    decode_serving_config,
    encode_serving_config,
    single_version,
)

CONFIG = ServingConfig(
    model="resnet50",
    versions=(ServedVersion("v1", "/mnt/a.onnx", 90), ServedVersion("v2", "/mnt/b.onnx", 10, "ab" * 32)),
    batching=Batching(max_batch_size=16),
    queue=QueuePolicy(max_rows=256, default_timeout_ms=0.5, timeout_action="Delay"),
    priorities=Priorities(queues={10: QueuePolicy(), 2: QueuePolicy(max_timeout_ms=50.0)}),
    tenants=(Tenant("acme", 3),),
    revision=7,
)


def test_what_was_encoded_is_decoded() -> None:
    assert decode_serving_config(encode_serving_config(CONFIG)) == CONFIG


def test_keys_are_sorted_so_that_equal_configurations_are_equal_bytes() -> None:
    document = encode_serving_config(CONFIG)
    assert json.dumps(json.loads(document), sort_keys=True, separators=(",", ":")).encode() == document


def test_defaults_are_those_of_the_specification() -> None:
    batching = decode_serving_config(b'{"model":"m","versions":[{"versionId":"1","path":"a"}]}').batching
    assert (batching.max_batch_size, batching.prefetch_queue_depth, batching.tensor_cache) == (32, 8, True)


def test_the_quick_start_serves_one_file_under_its_own_name() -> None:
    config = single_version("models/resnet50.onnx", Batching())
    assert (config.model, [version.version_id for version in config.versions]) == ("resnet50", ["1"])


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("a model without a name", {"model": ""}, "servingConfig.model: "),
    ("a version without an id", {"versions": [{"versionId": "", "path": "a"}]}, "versions[0].versionId: "),
    ("a version without a file", {"versions": [{"versionId": "1", "path": ""}]}, "versions[0].path: "),
    (
        "a batch size above its range",
        {"batching": {"maxBatchSize": 129}},
        "servingConfig.batching.maxBatchSize",
    ),
    (
        "a batch size below its range",
        {"batching": {"maxBatchSize": 3}},
        "an integer from 4 to 128, default 32",
    ),
    (
        "a queue depth above its range",
        {"batching": {"prefetchQueueDepth": 33}},
        "an integer from 2 to 32, default 8",
    ),
    ("an unknown field", {"surprise": 1}, "servingConfig.surprise: is not a field"),
    ("a revision that no counter holds", {"revision": 2**63}, f"an integer from 1 to {2**63 - 1}"),
    ("no versions", {"versions": []}, "servingConfig.versions: 0 entries"),
    ("weights of 90", {"versions": [{"versionId": "1", "path": "a", "weight": 90}]}, "a sum of exactly 100"),
    (
        "a repeated id",
        {
            "versions": [
                {"versionId": "1", "path": "a", "weight": 50},
                {"versionId": "1", "path": "b", "weight": 50},
            ]
        },
        "each id once",
    ),
    (
        "a key that is no level",
        {"priorities": {"queues": {"first": {}}}},
        "servingConfig.priorities.queues: has a key that is not allowed; allowed: as keys an integer",
    ),
    (
        "a level above the highest",
        {"priorities": {"queues": {"11": {}}}},
        "priorities.queues: 11 is out of range; allowed: 1 to 10",
    ),
    (
        "a timeout below its range",
        {"queue": {"maxTimeoutMs": -0.5}},
        "servingConfig.queue.maxTimeoutMs: -0.5 is out of range; allowed: a number from 0 to 3600000",
    ),
    (
        "a tenant twice",
        {"tenants": [{"tenantId": "a"}, {"tenantId": "a"}]},
        "allowed: each id once",
    ),
    ("a text for a number", {"revision": "1"}, "servingConfig.revision"),
    (
        "a default above the levels",
        {"priorities": {"levels": 3, "default": 4}},
        "priorities.default: 4 is out",
    ),
    (
        "a model's name with a line break",
        {"model": "a\nb"},
        "model: 'a\\nb' is no name; allowed: 1 to 250 bytes",
    ),
    ("a model's name with a slash", {"model": "a/b"}, "printable characters other than /"),
    ("a model's name that is too long", {"model": "ä" * 126}, "allowed: 1 to 250 bytes"),
    (
        "a version's id with a slash",
        {"versions": [{"versionId": "1/2", "path": "a"}]},
        "versions[0].versionId: '1/2' is no name",
    ),
]


@pytest.mark.parametrize(
    ("priorities", "default"),
    [({}, 5), ({"levels": 3}, 2), ({"levels": 1}, 1), ({"levels": 4}, 2), ({"levels": 3, "default": 3}, 3)],
)
def test_the_default_level_is_the_one_in_the_middle(priorities: dict[str, int], default: int) -> None:
    document = {"model": "m", "versions": [{"versionId": "1", "path": "a"}], "priorities": priorities}
    config = decode_serving_config(json.dumps(document).encode())
    assert config.priorities.default == default
    assert decode_serving_config(encode_serving_config(config)) == config


@pytest.mark.parametrize("name", ["resnet50", "a b", "modèle.v2", "x" * 250, "%2F"])
def test_names_are_printable_and_one_segment_of_a_path(name: str) -> None:
    document = {"model": name, "versions": [{"versionId": name, "path": "a"}]}
    assert decode_serving_config(json.dumps(document).encode()).model == name


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_a_document_in_what_an_editor_of_windows_writes_is_read(encoding: str) -> None:
    document = {"model": "modèle", "versions": [{"versionId": "1", "path": "a"}]}
    config = decode_serving_config(json.dumps(document, ensure_ascii=False).encode(encoding))
    assert config == decode_serving_config(json.dumps(document).encode())


@pytest.mark.parametrize("path", ["models/a\nb.onnx", "/", "", "é" * 126 + ".onnx"])
def test_a_file_whose_name_cannot_be_a_model_is_refused(path: str) -> None:
    with pytest.raises(InvalidResourceError, match="printable characters other than /"):
        single_version(path, Batching())


@pytest.mark.parametrize(("change", "said"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_document_is_refused_with_field_and_range(change: dict[str, Any], said: str) -> None:
    document = {"model": "m", "versions": [{"versionId": "1", "path": "a"}]} | change
    with pytest.raises(InvalidResourceError) as refused:
        decode_serving_config(json.dumps(document).encode())
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "document",
    [
        *(b"", b"{", b'{"revision": 1e400}', b"[" * 100_000, b"\xff", b'{"model": "\\ud800"}'),
        *(b"\xef\xbb\xbf", b"\xff\xfe{", b"\xff\xfe\x00\xd8"),
    ],
    ids=[
        *("empty", "cut short", "a number that no double holds", "nested", "no UTF-8", "half a character"),
        *("a mark and nothing", "half a byte pair", "half a character of UTF-16"),
    ],
)
def test_what_is_no_json_is_refused(document: bytes) -> None:
    with pytest.raises(InvalidResourceError, match="one JSON object"):
        decode_serving_config(document)


@pytest.mark.parametrize("value", [3, 129, float("nan"), float("inf")])
def test_a_range_check_names_the_range(value: float) -> None:
    with pytest.raises(InvalidResourceError, match="allowed: 4 to 128"):
        check_range("--max-batch-size", value, (4, 128))


@pytest.mark.parametrize("value", [4, 128])
def test_both_ends_of_a_range_are_allowed(value: int) -> None:
    check_range("--max-batch-size", value, (4, 128))
