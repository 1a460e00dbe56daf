"""Priority and tenant in headers: what is taken, and how a wrong one is named."""

import pytest

from mcp2026.api.serving import Priorities, ServedVersion, ServingConfig
from mcp2026.runtime.errors import RequestError
from mcp2026.runtime.protocol.scheduling_labels import NONE, SchedulingLabels, scheduling_labels

CONFIG = ServingConfig("m", (ServedVersion("1", "m.onnx"),), priorities=Priorities(levels=3, default=2))


@pytest.mark.parametrize(
    ("headers", "labels"),
    [
        pytest.param({b"accept": b"*/*"}, NONE, id="neither"),
        pytest.param({b"x-mcp-priority": b"3"}, SchedulingLabels(3, ""), id="the last level"),
        pytest.param({b"x-mcp-priority": b"0"}, SchedulingLabels(0, ""), id="the default"),
        pytest.param({b"x-mcp-tenant-id": b"t" * 63}, SchedulingLabels(0, "t" * 63), id="the longest tenant"),
    ],
)
def test_labels_are_taken(headers: dict[bytes, bytes], labels: SchedulingLabels) -> None:
    assert scheduling_labels(headers, CONFIG) == labels


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({b"x-mcp-priority": b"high"}, "x-mcp-priority: 'high' is not a number"),
        ({b"x-mcp-priority": b"\xff"}, "x-mcp-priority: 'ÿ' is not a number"),
        ({b"x-mcp-priority": b"4"}, "x-mcp-priority: 4 is out of range"),
        ({b"x-mcp-priority": b"-1"}, "x-mcp-priority: -1 is out of range"),
        ({b"x-mcp-tenant-id": b"t" * 64}, "x-mcp-tenant-id: has 64 characters"),
    ],
)
def test_a_wrong_label_is_named_as_it_was_sent(headers: dict[bytes, bytes], said: str) -> None:
    with pytest.raises(RequestError) as refused:
        scheduling_labels(headers, CONFIG)
    assert refused.value.message == said
