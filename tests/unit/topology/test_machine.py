"""Machines come from files and from `GPUTopology`s; what is wrong with one is said by file and field."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp2026.api.gpu_topology import GpuStatus, GPUTopologyStatus, NvLink
from mcp2026.topology.errors import MachineFormatError
from mcp2026.topology.machine import PcieAncestor, ancestor_name, machine_from_file, machine_from_topology

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
FIXTURES = sorted(TOPOLOGIES.glob("*.yaml"))


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_fixture_is_a_whole_machine(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    machine = machine_from_file(path)
    size = len(document["gpus"])

    assert machine.name == path.stem
    assert [gpu.index for gpu in machine.gpus] == list(range(size))
    assert len({gpu.uuid for gpu in machine.gpus}) == len({gpu.pci_bus_id for gpu in machine.gpus}) == size
    for a in range(size):
        assert machine.pcie_ancestors[a][a] is None
        assert all(machine.pcie_ancestors[a][b] == machine.pcie_ancestors[b][a] for b in range(size))
    for gpu, entry in zip(machine.gpus, document["gpus"], strict=True):
        assert (gpu.uuid, gpu.product, gpu.memory_mib) == (
            entry["uuid"],
            entry["product"],
            entry["memory_mib"],
        )
        assert [(link.link, link.version) for link in gpu.nvlinks] == [
            (link["link"], link["version"]) for link in entry["nvlinks"]
        ]
        assert [link.peer for link in gpu.nvlinks] == [
            None if link["peer"] == "nvswitch" else link["peer"] for link in entry["nvlinks"]
        ]


def test_a_numa_node_below_zero_is_an_unknown_one() -> None:
    assert machine_from_file(TOPOLOGIES / "1xt4-edge.yaml").gpus[0].numa_node is None


def _document() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((TOPOLOGIES / "4xl40s-pcie-2socket.yaml").read_text())
    return document


def _without(*path: str | int) -> Callable[[dict[str, Any]], None]:
    def edit(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        del document[path[-1]]

    return edit


def _with(value: Any, *path: str | int) -> Callable[[dict[str, Any]], None]:
    def edit(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        pytest.param(_without("gpus"), "gpus", id="no GPUs"),
        pytest.param(_without("gpus", 2, "uuid"), "uuid", id="a GPU without a UUID"),
        pytest.param(
            _with("much", "gpus", 1, "memory_mib"), "gpus[1].memory_mib", id="memory that is no number"
        ),
        pytest.param(_with("all", "gpus"), "gpus", id="GPUs that are no list"),
        pytest.param(_with([{"link": 0}], "gpus", 0, "nvlinks"), "peer", id="a link without a peer"),
        pytest.param(
            _with([{"link": 0, "peer": "switch", "version": 3}], "gpus", 0, "nvlinks"),
            "peer",
            id="an unknown peer",
        ),
        pytest.param(_with("NEAR", "pcie_ancestor", 0, 1), "NEAR", id="an ancestor that does not exist"),
        pytest.param(_without("pcie_ancestor", 3), "pcie_ancestor", id="a matrix that lacks a row"),
        pytest.param(_without("pcie_ancestor", 3, 0), "pcie_ancestor", id="a matrix with a short row"),
        pytest.param(_without("driver"), "driver", id="no driver"),
    ],
)
def test_a_bad_file_is_refused_by_file_and_field(
    edit: Callable[[dict[str, Any]], None], field: str, tmp_path: Path
) -> None:
    document = _document()
    edit(document)
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(MachineFormatError) as refused:
        machine_from_file(path)
    assert refused.value.source == str(path)
    assert str(path) in str(refused.value)
    assert field in refused.value.problem


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"gpus: [", id="an unfinished list"),
        pytest.param(b"\xff\xfe", id="bytes that are no text"),
        pytest.param(b"", id="an empty file"),
        pytest.param(b"- a list", id="a list in the place of a machine"),
        pytest.param(b"[" * 20_000, id="lists without end"),
        pytest.param(b"name: x\x00", id="a character that YAML forbids"),
    ],
)
def test_what_is_no_machine_at_all_is_refused_by_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(MachineFormatError, match=r"bad\.yaml"):
        machine_from_file(path)


def test_a_path_that_cannot_be_read_is_refused_by_its_name(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(MachineFormatError, match=f"{path}: cannot be read: "):
            machine_from_file(path)


def test_a_topology_gives_health_and_links() -> None:
    gpu = GpuStatus(
        index=3,
        uuid="GPU-3",
        product="P",
        memory_mi_b=1,
        pci_bus_id="b",
        health="Unhealthy",
        nvlinks=(NvLink(0, None, 4), NvLink(1, 2, 4)),
    )
    machine = machine_from_topology("n", GPUTopologyStatus("1.2", "12.4", (gpu,), (("SELF",),)))
    assert (machine.name, machine.driver, machine.cuda) == ("n", "1.2", "12.4")
    assert not machine.gpus[0].healthy
    assert machine.gpus[0].numa_node is None
    assert [link.peer for link in machine.gpus[0].nvlinks] == [None, 2]


def test_a_topology_with_an_ancestor_that_does_not_exist_is_refused_by_node() -> None:
    with pytest.raises(MachineFormatError, match=r"GPUTopology n: .*NEAR"):
        machine_from_topology("n", GPUTopologyStatus(pcie_ancestors=(("NEAR",),)))


def test_ancestors_have_the_values_of_nvml_and_names_that_lead_back() -> None:
    import pynvml

    assert {ancestor.name: int(ancestor) for ancestor in PcieAncestor} == {
        "INTERNAL": pynvml.NVML_TOPOLOGY_INTERNAL,
        "SINGLE": pynvml.NVML_TOPOLOGY_SINGLE,
        "MULTIPLE": pynvml.NVML_TOPOLOGY_MULTIPLE,
        "HOSTBRIDGE": pynvml.NVML_TOPOLOGY_HOSTBRIDGE,
        "NODE": pynvml.NVML_TOPOLOGY_NODE,
        "SYSTEM": pynvml.NVML_TOPOLOGY_SYSTEM,
    }
    assert [PcieAncestor[ancestor_name(ancestor)] for ancestor in PcieAncestor] == list(PcieAncestor)
    assert ancestor_name(None) == "SELF"
