"""An answer can be asked for again from what was written down, and explained."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mcp2026.topology.demand import DemandMix
from mcp2026.topology.errors import MachineFormatError, SnapshotFormatError
from mcp2026.topology.explanation import explain
from mcp2026.topology.machine import machine_from_file
from mcp2026.topology.score import Circumstances
from mcp2026.topology.snapshot import (
    PlacementSnapshot,
    score_document,
    snapshot_document,
    snapshot_from_document,
)
from tests.unit.topology.reference import random_machine

TOPOLOGIES = Path(__file__).parents[2] / "topologies"


@pytest.mark.parametrize("seed", range(50))
def test_what_is_written_down_asks_the_same_question_and_gets_the_same_answer(seed: int) -> None:
    random = Random(seed)
    size = random.randint(1, 8)
    machine = random_machine(random, size)
    known = Circumstances(
        tenants=tuple(random.choice([0, 2]) for _ in range(size)),
        headroom_us=tuple(random.choice([None, -3, 8]) for _ in range(size)),
        degraded=(random.randrange(size),),
        mix=DemandMix.of({2: 70, 3: 30}),
    )
    free = tuple(sorted(random.sample(range(size), random.randint(1, size))))
    asked = PlacementSnapshot(machine, free, random.randint(1, len(free)), free[:1], known)
    read = snapshot_from_document("s", json.loads(json.dumps(snapshot_document(asked))))
    assert read.answer() == asked.answer()
    assert snapshot_document(read) == snapshot_document(asked)


def _document(**changes: Any) -> dict[str, Any]:
    machine = machine_from_file(TOPOLOGIES / "4xa100-pcie-nvlink-pairs.yaml")
    return snapshot_document(PlacementSnapshot(machine, (0, 1, 2, 3), 2)) | changes


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"free": [0, 7]}, "free: no GPU 7; allowed: 0, 1, 2, 3", id="a GPU that is not there"),
        pytest.param({"mustInclude": [9]}, "mustInclude: no GPU 9", id="one that must be included"),
        pytest.param({"tenants": {"8": 1}}, "tenants: no GPU 8", id="tenants of a GPU that is not there"),
        pytest.param({"headroomUs": {"8": 1}}, "headroomUs: no GPU 8", id="headroom of one"),
        pytest.param({"size": -1}, "size", id="a negative size"),
        pytest.param({"sise": 1}, "sise", id="an unknown field"),
        pytest.param({"demandMix": {"2": 10}}, "demandMix", id="a mix that does not sum to 100"),
        pytest.param({"free": None}, "free", id="no free GPUs"),
    ],
)
def test_a_bad_snapshot_is_refused_by_source_and_field(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(SnapshotFormatError, match=r"^s: ") as refused:
        snapshot_from_document("s", _document(**changes))
    assert problem in refused.value.problem


def test_a_bad_machine_in_a_snapshot_is_refused() -> None:
    with pytest.raises(MachineFormatError, match="s: machine: Object missing required field `driver`"):
        snapshot_from_document("s", _document(machine={"name": "x"}))


def test_an_explanation_names_the_band_that_decided_and_the_best_that_lost() -> None:
    machine = machine_from_file(TOPOLOGIES / "4xa100-pcie-half-bridged.yaml")
    one = explain(PlacementSnapshot(machine, (0, 1, 2, 3), 1))
    assert (one.choice.gpus, one.decided_by, one.runner_up, one.equals) == ((2,), "future-loss", (0,), 1)
    two = explain(PlacementSnapshot(machine, (0, 1, 2, 3), 2))
    assert (two.choice.gpus, two.decided_by, two.runner_up, two.equals) == ((0, 1), "weakest-link", (2, 3), 0)
    four = explain(PlacementSnapshot(machine, (0, 1, 2, 3), 4))
    assert (four.runner_up, four.decided_by, four.equals) == ((), "", 0)


def test_too_many_sets_are_not_compared() -> None:
    machine = random_machine(Random(1), 24)
    found = explain(PlacementSnapshot(machine, tuple(range(24)), 12))
    assert not found.compared


def test_a_score_as_data_has_all_terms() -> None:
    machine = machine_from_file(TOPOLOGIES / "1xt4-edge.yaml")
    terms = score_document(PlacementSnapshot(machine, (0,), 1).answer().score)
    assert [term["name"] for term in terms][:3] == ["slo-shortfall", "degraded-gpus", "weakest-link"]
    assert terms[6] == {"name": "future-loss", "value": 0, "unit": "MB/s"}
