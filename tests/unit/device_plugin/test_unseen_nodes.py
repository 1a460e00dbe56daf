"""A plugin that shall give device nodes and does not see them says so: CDI would leave the GPUs out."""

import os
from pathlib import Path

import pytest

from mcp2026.device_plugin.allocator import Allocator
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.holdings import Promises
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.metrics import Metrics
from mcp2026.device_plugin.settings import Settings
from mcp2026.device_plugin.strategy import Strategy
from mcp2026.topology.machine import machine_from_file

MACHINE = machine_from_file(Path(__file__).parents[2] / "topologies" / "4xa100-pcie-nvlink-pairs.yaml")
UUIDS = [gpu.uuid for gpu in MACHINE.gpus]


@pytest.mark.parametrize(
    ("strategies", "seen", "told"),
    [
        pytest.param({Strategy.ENVVAR}, 0, 0, id="none are needed"),
        pytest.param({Strategy.CDI_CRI}, 0, 4, id="CDI, and none are seen"),
        pytest.param({Strategy.ENVVAR, Strategy.DEVICE_NODES}, 3, 1, id="one is not seen"),
        pytest.param({Strategy.CDI_CRI}, 4, 0, id="all are seen"),
    ],
)
def test_nodes_that_are_not_seen_are_told(
    strategies: set[Strategy],
    seen: int,
    told: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(os.path, "exists", {f"/dev/nvidia{minor}" for minor in range(seen)}.__contains__)
    node = Snapshot(MACHINE, minor_numbers={uuid: minor for minor, uuid in enumerate(UUIDS)})
    settings = Settings("n", strategies=frozenset(strategies))
    Allocator(settings, Inventory(node), Promises(), Metrics()).tell_unseen_nodes()
    assert [uuid for uuid in UUIDS if uuid in caplog.text] == UUIDS[4 - told :]
    assert ("mount the host's /dev" in caplog.text) == bool(told)
