"""Machines come from files and from `GPUTopology`s; what is wrong with one is said by file and field."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp2026.api.gpu_topology import GpuStatus, GPUTopologyStatus, NvLink
from mcp2026.topology.affinity import affinity_graph
from mcp2026.topology.errors import MachineFormatError
from mcp2026.topology.machine import (
    Machine,
    PcieAncestor,
    ancestor_name,
    description_from_file,
    machine_document,
    machine_from_file,
    machine_from_topology,
)

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
        pytest.param(_with(0, "gpus", 3, "index"), "gpus[3].index", id="one index twice"),
        pytest.param(_with([[None]], "latency_ns"), "latency_ns", id="too few latencies"),
        pytest.param(
            _with([[None, -5, 1, 1]] + [[1, 1, 1, 1]] * 3, "latency_ns"),
            "latency_ns[0][1]",
            id="a latency below zero",
        ),
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
    machine = machine_from_topology(
        "n", GPUTopologyStatus(driver="1.2", cuda="12.4", gpus=(gpu,), pcie_ancestors=(("SELF",),))
    )
    assert (machine.name, machine.driver, machine.cuda) == ("n", "1.2", "12.4")
    assert not machine.gpus[0].healthy
    assert machine.gpus[0].numa_node is None
    assert [link.peer for link in machine.gpus[0].nvlinks] == [None, 2]


def test_a_topology_with_an_ancestor_that_does_not_exist_is_refused_by_node() -> None:
    with pytest.raises(MachineFormatError, match=r"GPUTopology n: .*NEAR"):
        machine_from_topology("n", GPUTopologyStatus(gpus=(_GPU,), pcie_ancestors=(("NEAR",),)))


def test_a_topology_without_an_ancestor_for_each_pair_is_refused_by_field() -> None:
    with pytest.raises(MachineFormatError, match="pcieAncestors: not a matrix of 1 x 1"):
        machine_from_topology("n", GPUTopologyStatus(gpus=(_GPU,)))


_GPU = GpuStatus(index=3, uuid="GPU-3", product="P", memory_mi_b=1, pci_bus_id="b")


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_machine_that_is_written_and_read_again_is_the_same(path: Path, tmp_path: Path) -> None:
    machine = machine_from_file(path)
    size = len(machine.gpus)
    marked = replace(
        machine,
        gpus=(
            replace(machine.gpus[0], inactive_links=(30, 31), degraded=True, healthy=False),
            *machine.gpus[1:],
        ),
        measured_latency_ns=tuple(
            tuple(None if a == b else 600 + a + b for b in range(size)) for a in range(size)
        ),
    )
    for number, each in enumerate((machine, marked)):
        written = tmp_path / f"{number}.json"
        written.write_text(json.dumps(machine_document(each)))
        assert machine_from_file(written) == each


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
@pytest.mark.parametrize("listed", [False, True], ids=["one object", "a list of one"])
def test_a_gpu_topology_as_kubectl_prints_it_is_read(path: Path, listed: bool, tmp_path: Path) -> None:
    machine = machine_from_file(path)
    resource = gpu_topology(machine)
    document = {"apiVersion": "v1", "kind": "List", "items": [resource]} if listed else resource
    printed_as = [("t.json", json.dumps(document))]
    if len(machine.gpus) <= 4:  # YAML of many links takes long to write and to read
        printed_as.append(("t.yaml", yaml.safe_dump(document)))
    for name, text in printed_as:
        printed = tmp_path / name
        printed.write_text(text)
        read = description_from_file(printed)
        assert read.machine == machine
        assert affinity_graph(read.machine) == affinity_graph(machine)
        assert read.topology is not None
        assert read.topology.status.gpus[0].health == "Healthy"


def gpu_topology(machine: Machine) -> dict[str, Any]:
    gpus = []
    for gpu in machine.gpus:
        entry: dict[str, Any] = {
            "index": gpu.index,
            "uuid": gpu.uuid,
            "product": gpu.product,
            "memoryMiB": gpu.memory_mib,
            "pciBusId": gpu.pci_bus_id,
            "migCapable": gpu.mig_capable,
            "nvlinks": [
                {"link": link.link, "version": link.version}
                | ({"peer": link.peer} if link.peer is not None else {})
                for link in gpu.nvlinks
            ],
        }
        gpus.append(entry | ({"numaNode": gpu.numa_node} if gpu.numa_node is not None else {}))
    return {
        "apiVersion": "mcp2026.io/v1alpha1",
        "kind": "GPUTopology",
        "metadata": {"name": machine.name, "resourceVersion": "7"},
        "status": {
            "driver": machine.driver,
            "cuda": machine.cuda,
            "gpus": gpus,
            "pcieAncestors": [[ancestor_name(cell) for cell in row] for row in machine.pcie_ancestors],
        },
    }


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        pytest.param(_with("Pod", "kind"), "kind: Pod; allowed: GPUTopology", id="another kind"),
        pytest.param(_with("List", "kind"), "items: not a list of objects", id="a list without items"),
        pytest.param(_with([], "status"), "", id="an empty list as status is no status"),
        pytest.param(_with("x", "status"), "status: not an object", id="a status that is text"),
        pytest.param(_without("status", "gpus", 1, "uuid"), "status.gpus[1].uuid", id="a GPU without UUID"),
        pytest.param(
            _with("hot", "status", "gpus", 0, "health"), "status.gpus[0].health", id="an unknown health"
        ),
        pytest.param(
            _without("status", "pcieAncestors"), "pcieAncestors: not a matrix of 4 x 4", id="no ancestors"
        ),
        pytest.param(
            _with(1, "status", "gpus", 0, "index"),
            "gpus[1].index: 1 is that of gpus[0]",
            id="one index twice",
        ),
    ],
)
def test_a_bad_gpu_topology_is_refused_by_file_and_field(
    edit: Callable[[dict[str, Any]], None], problem: str, tmp_path: Path
) -> None:
    document = gpu_topology(machine_from_file(TOPOLOGIES / "4xl40s-pcie-2socket.yaml"))
    edit(document)
    path = tmp_path / "t.yaml"
    path.write_text(yaml.safe_dump(document))
    if not problem:
        assert description_from_file(path).machine.gpus == ()
        return
    with pytest.raises(MachineFormatError) as refused:
        description_from_file(path)
    assert refused.value.source == str(path)
    assert problem in refused.value.problem


def test_a_list_of_several_topologies_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    resource = gpu_topology(machine_from_file(TOPOLOGIES / "1xgh200.yaml"))
    path.write_text(yaml.safe_dump({"kind": "GPUTopologyList", "items": [resource, resource]}))
    with pytest.raises(MachineFormatError, match="items: 2 objects; allowed: one GPUTopology"):
        machine_from_file(path)


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
