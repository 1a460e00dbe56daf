"""Which taint a node gets from the conditions of its GPUs, beside the taints of others."""

import pytest

from mcp2026.device_plugin.devices import GpuCondition, Snapshot
from mcp2026.device_plugin.health.settings import HealthSettings
from mcp2026.device_plugin.health.tainting import taints_after, wanted_taint
from mcp2026.topology.machine import Gpu, Machine

KEY = "node.kubernetes.io/device-unhealthy"
OURS = {"key": KEY, "value": "Xid79", "effect": "NoSchedule"}
OTHERS = [
    {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
]


def node(*healths: str) -> Snapshot:
    gpus = tuple(Gpu(index, f"GPU-{index}", "A100", 40960, "", 0) for index in range(len(healths)))
    conditions = {
        f"GPU-{index}": GpuCondition(health, "Xid79", "it fell off")  # type: ignore[arg-type]
        for index, health in enumerate(healths)
        if health != "Healthy"
    }
    return Snapshot(Machine("n", gpus, ()), conditions | {"MIG-1": GpuCondition("Unhealthy", "Xid94", "")})


@pytest.mark.parametrize(
    ("snapshot", "settings", "wanted"),
    [
        pytest.param(node("Healthy", "Healthy"), HealthSettings(), None, id="all is well; a slice is no GPU"),
        pytest.param(node("Degraded", "Healthy"), HealthSettings(), None, id="degraded GPUs are usable"),
        pytest.param(node("Healthy", "Unhealthy"), HealthSettings(), OURS, id="the first that fails"),
        pytest.param(
            node("Healthy", "Unhealthy"), HealthSettings(taint_when="All"), None, id="not all have failed"
        ),
        pytest.param(node("Unhealthy", "Unhealthy"), HealthSettings(taint_when="All"), OURS, id="all failed"),
        pytest.param(node("Unhealthy"), HealthSettings(taint_effect="None"), None, id="no taint is wanted"),
        pytest.param(
            node("Unhealthy"),
            HealthSettings(taint_effect="NoExecute"),
            OURS | {"effect": "NoExecute"},
            id="the effect is as set",
        ),
        pytest.param(node(), HealthSettings(taint_when="All"), None, id="no GPUs"),
    ],
)
def test_the_taint_that_is_wanted(
    snapshot: Snapshot, settings: HealthSettings, wanted: dict[str, str] | None
) -> None:
    assert wanted_taint(snapshot, settings) == wanted


@pytest.mark.parametrize(
    ("present", "wanted", "after"),
    [
        pytest.param(None, None, None, id="nothing is there and nothing wanted"),
        pytest.param(OTHERS, None, None, id="others stay as they are"),
        pytest.param(None, OURS, [OURS], id="the first taint"),
        pytest.param(OTHERS, OURS, [*OTHERS, OURS], id="beside others"),
        pytest.param([*OTHERS, OURS], OURS, None, id="already there"),
        pytest.param([OURS, *OTHERS], None, OTHERS, id="left behind by another process: removed"),
        pytest.param([OURS], None, [], id="the last one goes"),
        pytest.param(
            [OURS | {"effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}],
            OURS,
            [OURS],
            id="other effect",
        ),
        pytest.param(
            [OURS | {"timeAdded": "2026-01-01T00:00:00Z"}], OURS, None, id="the time that Kubernetes adds"
        ),
    ],
)
def test_the_list_that_comes_of_it(
    present: list[dict[str, str]] | None, wanted: dict[str, str] | None, after: list[dict[str, str]] | None
) -> None:
    assert taints_after(present, wanted) == after
