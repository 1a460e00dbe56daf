"""What is wanted of each GPU, and what is refused with which words."""

import logging
from pathlib import Path
from typing import Any

import pytest

from mcp2026.api.errors import ConfigurationError, InvalidResourceError
from mcp2026.api.gpu_sharing import EXCLUSIVE, Sharing
from mcp2026.device_plugin.configuration import Configuration, parse_configuration, parse_spec, wanted_sharing
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.wishes import SeenSpec, Wishes
from mcp2026.device_plugin.wishes_loop import WishesLoop
from mcp2026.topology.machine import machine_from_file

MACHINE = machine_from_file(Path(__file__).parents[2] / "topologies" / "4xa100-pcie-nvlink-pairs.yaml")
UUIDS = [gpu.uuid for gpu in MACHINE.gpus]
TURNS, MPS = Sharing("TimeSlice"), Sharing("MPS", replicas=2)

EXAMPLE = """
sharing: {mode: TimeSlice}
gpus:
  - {index: 1, sharing: {mode: MPS, replicas: 2}}
nodes:
  node-a:
    gpus:
      - {index: 2, sharing: {}}
  node-b:
    sharing: {mode: MPS, replicas: 2}
"""


@pytest.mark.parametrize(
    ("node", "spec", "expected"),
    [
        pytest.param("other", {}, [TURNS, MPS, TURNS, TURNS], id="everywhere: all, and one otherwise"),
        pytest.param("node-a", {}, [TURNS, MPS, EXCLUSIVE, TURNS], id="a node: one of its GPUs otherwise"),
        pytest.param("node-b", {}, [MPS] * 4, id="a node: all, before what is said everywhere of one"),
        pytest.param(
            "other", {"gpus": [{"index": 0, "sharing": {}}]}, [EXCLUSIVE, MPS, TURNS, TURNS], id="spec: one"
        ),
        pytest.param("node-a", {"sharing": {}}, [EXCLUSIVE] * 4, id="spec: all"),
    ],
)
def test_the_last_that_speaks_of_a_gpu_holds(
    node: str, spec: dict[str, Any], expected: list[Sharing]
) -> None:
    configuration = parse_configuration(EXAMPLE, "file")
    wanted = wanted_sharing((*configuration.layers(node), parse_spec(spec, MACHINE)), MACHINE)
    assert [wanted[uuid] for uuid in UUIDS] == expected


def test_an_empty_file_says_nothing() -> None:
    assert parse_configuration("", "file") == Configuration()
    assert set(wanted_sharing(Configuration().layers("n"), MACHINE).values()) == {EXCLUSIVE}


@pytest.mark.parametrize(
    ("text", "field", "allowed"),
    [
        pytest.param("a: [", "not YAML", "", id="no YAML"),
        pytest.param("- 1", "configuration", "an object", id="a list"),
        pytest.param(
            "replicas: 4",
            "configuration.replicas: is not a field",
            "gpus, health, nodes, shares, sharing",
            id="unknown field",
        ),
        pytest.param(
            "nodes: {a: {sharing: {repicas: 4}}}",
            "configuration.nodes[...].sharing.repicas",
            "replicas",
            id="deep",
        ),
        pytest.param("sharing: {mode: Turns}", "configuration.sharing.mode", "TimeSlice", id="unknown mode"),
        pytest.param("sharing: {replicas: 99}", "configuration.sharing.replicas", "1 to 64", id="too many"),
        pytest.param(
            "sharing: {replicas: 2}", "sharing.replicas", "mode TimeSlice or MPS", id="shares of a whole GPU"
        ),
        pytest.param(
            "sharing: {mode: MPS, replicas: 49}", "sharing.replicas", "at most 48", id="more than MPS takes"
        ),
        pytest.param(
            "sharing: {mode: MIG}", "sharing.migLayout", "at least one profile", id="MIG without layout"
        ),
        pytest.param(
            "gpus: [{index: 1, sharing: {}}, {index: 1, sharing: {}}]",
            "gpus[1].index: 1 comes twice",
            "once",
            id="twice",
        ),
        pytest.param(
            "nodes: {a: {gpus: [{index: 0, sharing: {unit: Memory}}]}}",
            "nodes.a.gpus[0].sharing.unit",
            "Memory with",
            id="of a node",
        ),
        pytest.param(
            "nodes: {a: {gpus: [{index: -1, sharing: {}}]}}", "index", "at least 0", id="negative index"
        ),
        pytest.param(
            "gpus: [{index: 0, sharing: {}}, {index: 64, sharing: {}}]",
            "gpus[1].index: 64 is no GPU of any node",
            "0 to 63",
            id="an index that no node has",
        ),
        pytest.param(
            "nodes: {a: {gpus: [{index: 64, sharing: {}}]}}", "nodes.a.gpus[0]", "0 to 63", id="nor a"
        ),
        pytest.param("{" * 500, "not YAML", "", id="nested too deeply"),
    ],
)
def test_what_cannot_be_is_refused_with_file_field_and_range(text: str, field: str, allowed: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_configuration(text, "/etc/mcp2026/device-plugin.yaml")
    assert str(refused.value).startswith("/etc/mcp2026/device-plugin.yaml: ")
    assert field in str(refused.value)
    assert allowed in str(refused.value)


def test_a_spec_that_names_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidResourceError, match=r"spec\.gpus\[0\]\.index: 4 is no GPU .* 0, 1, 2, 3"):
        parse_spec({"gpus": [{"index": 4, "sharing": {}}]}, MACHINE)


def test_a_gpu_that_cannot_be_read_does_not_undo_what_is_said_of_the_others() -> None:
    spec = {"gpus": [{"index": 0, "sharing": {"mode": "TimeSlice"}}, {"index": 4, "sharing": {}}]}
    wishes = Wishes("n", Configuration())
    wishes.spec_seen(SeenSpec(spec, 1))
    found = wishes.apply(Snapshot(MACHINE, unreadable={4: "GPU is lost"}))
    assert not found.refusals
    assert found.wanted[UUIDS[0]] == TURNS


def test_a_configuration_for_gpus_that_a_node_does_not_have_is_told() -> None:
    text = "nodes: {n: {gpus: [{index: 0, sharing: {}}, {index: 7, sharing: {}}, {index: 4, sharing: {}}]}}"
    node = Snapshot(MACHINE, unreadable={4: "GPU is lost"})
    configuration = parse_configuration(text, "file")
    assert Wishes("n", configuration).without_a_gpu(node) == ("nodes.n.gpus[1].index: 7",)
    assert Wishes("other", configuration).without_a_gpu(node) == ()


def test_gpus_that_only_other_nodes_have_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """One file is for all nodes, so it may name the GPU 7 of those that have eight."""
    caplog.set_level(logging.INFO)
    text = "gpus: [{index: 0, sharing: {}}, {index: 7, sharing: {}}, {index: 4, sharing: {}}]"
    inventory = Inventory(Snapshot(MACHINE, unreadable={4: "GPU is lost"}))
    loop = WishesLoop(Wishes("n", parse_configuration(text, "file")), inventory, None)
    for generation in range(3):
        loop.spec_seen(SeenSpec(None, generation))
    told = [record for record in caplog.records if "this node does not have" in record.getMessage()]
    assert [(record.levelname, record.getMessage().count("gpus[1].index: 7;")) for record in told] == [
        ("INFO", 1)
    ]


# ---- what holds as time goes on ----


def after(wishes: Wishes, snapshot: Snapshot | None = None) -> Snapshot:
    return wishes.apply(snapshot or Snapshot(MACHINE))


def test_nothing_is_wanted_before_the_spec_is_known() -> None:
    wishes = Wishes("n", Configuration())
    assert not after(wishes).wanted
    wishes.spec_seen(SeenSpec())
    assert after(wishes).wanted == dict.fromkeys(UUIDS, EXCLUSIVE)


def test_without_a_spec_the_configuration_holds_until_there_is_one() -> None:
    wishes = Wishes("node-b", parse_configuration(EXAMPLE, "file"))
    wishes.begin()
    assert set(after(wishes).wanted.values()) == {MPS}
    wishes.spec_seen(SeenSpec({"sharing": {}}, 2))
    assert set(after(wishes).wanted.values()) == {EXCLUSIVE}
    assert after(wishes).spec_generation == 2


def test_an_invalid_spec_leaves_the_last_good_one_and_is_told() -> None:
    wishes = Wishes("n", Configuration())
    wishes.spec_seen(SeenSpec({"sharing": {"mode": "TimeSlice"}}, 1))
    good = after(wishes)
    wishes.spec_seen(SeenSpec({"gpus": [{"index": 9, "sharing": {}}]}, 2))
    bad = after(wishes, good)
    assert bad.wanted == good.wanted
    assert bad.spec_generation == 1
    (refusal,) = bad.refusals
    assert refusal.generation == 2
    assert "spec.gpus[0].index" in refusal.message
    wishes.spec_seen(SeenSpec({}, 3))
    assert after(wishes, bad).refusals == ()
    assert after(wishes, bad).spec_generation == 3


def test_a_refused_configuration_leaves_the_old_one_and_is_told() -> None:
    wishes = Wishes("n", Configuration(TURNS))
    wishes.begin()
    wishes.configuration_refused("file: no")
    assert set(after(wishes).wanted.values()) == {TURNS}
    assert [refusal.message for refusal in after(wishes).refusals] == ["file: no"]
    wishes.configuration_read(Configuration(MPS))
    assert set(after(wishes).wanted.values()) == {MPS}
    assert not after(wishes).refusals
