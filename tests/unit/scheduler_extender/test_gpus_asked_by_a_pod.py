"""Sums and maxima as kube-scheduler makes them."""

from typing import Any

import msgspec
import pytest

from mcp2026.api.names import GPU_RESOURCE
from mcp2026.scheduler_extender.errors import InvalidQuantityError
from mcp2026.scheduler_extender.kube_objects import PodSpec
from mcp2026.scheduler_extender.request import demand_of, device_count


def container(gpus: Any = None, where: str = "limits", **more: Any) -> dict[str, Any]:
    resources = {} if gpus is None else {where: {GPU_RESOURCE: gpus, "cpu": "100m"}}
    return {"name": "c", "resources": resources, **more}


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("containers", "init_containers", "asked"),
    [
        pytest.param([container()], [], 0, id="no container asks for a GPU"),
        pytest.param([container("2"), container("1")], [], 3, id="containers run together and add up"),
        pytest.param([container("2", "requests")], [], 2, id="a request alone counts"),
        pytest.param([container(2)], [], 2, id="a bare number is a quantity too"),
        pytest.param([container("1")], [container("4")], 4, id="a greater init container decides"),
        pytest.param([container("4")], [container("1")], 4, id="a lesser init container does not add"),
        pytest.param(
            [container("1")],
            [container("2"), container("3")],
            3,
            id="init containers run one after another, so the greatest counts",
        ),
        pytest.param(
            [container("1")], [container("2", **SIDECAR)], 3, id="a sidecar runs beside the containers"
        ),
        pytest.param(
            [container("1")],
            [container("2", **SIDECAR), container("4")],
            6,
            id="an init container after a sidecar runs beside it",
        ),
        pytest.param(
            [container("1")],
            [container("4"), container("2", **SIDECAR)],
            4,
            id="an init container before a sidecar runs alone",
        ),
        pytest.param(
            [container("0")],
            [container("1", **SIDECAR), container("1", **SIDECAR)],
            2,
            id="sidecars add up",
        ),
    ],
)
def test_gpus_asked(
    containers: list[dict[str, Any]], init_containers: list[dict[str, Any]], asked: int
) -> None:
    spec = msgspec.convert({"containers": containers, "initContainers": init_containers}, PodSpec)
    assert demand_of(spec, GPU_RESOURCE).units == asked


def test_another_resource_is_not_counted() -> None:
    spec = msgspec.convert({"containers": [container("2")]}, PodSpec)
    assert demand_of(spec, "mcp2026.io/gpu-memory").units == 0


@pytest.mark.parametrize(
    ("quantity", "count"),
    [("0", 0), ("2", 2), ("2k", 2000), ("1Ki", 1024), ("2000m", 2), ("1e1", 10), (3, 3)],
)
def test_quantities_of_devices(quantity: str | int, count: int) -> None:
    assert device_count(GPU_RESOURCE, quantity) == count


@pytest.mark.parametrize("quantity", ["", "two", "-1", "500m", "1.5", "1e-3", "1 ", "NaN", "1e999999999"])
def test_what_is_no_count_is_refused_by_name(quantity: str) -> None:
    with pytest.raises(InvalidQuantityError, match=r"mcp2026\.io/gpu.*whole number"):
        device_count(GPU_RESOURCE, quantity)
