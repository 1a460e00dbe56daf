"""What a container is given for its devices, by each strategy, and the CDI specification behind it."""

import json
import stat
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mcp2026.api.gpu_sharing import Sharing
from mcp2026.api.names import GPU_MEMORY_RESOURCE, GPU_RESOURCE, GPU_SHARED_RESOURCE
from mcp2026.device_plugin.allocation import Grant, grant
from mcp2026.device_plugin.cdi.file import SpecificationFile
from mcp2026.device_plugin.cdi.specification import device_names, specification
from mcp2026.device_plugin.device_nodes import HostNodes, parse_mig_minors
from mcp2026.device_plugin.devices import CurrentSharing, Snapshot
from mcp2026.device_plugin.errors import CdiDirectoryError, SharesOfOneGpuError, UnsharableSetError
from mcp2026.device_plugin.share_placing import SharePlacing
from mcp2026.device_plugin.sharing.environment import SharesOfSeveralGpusError
from mcp2026.device_plugin.strategy import Strategy
from mcp2026.topology.machine import machine_from_file
from mcp2026.topology.mig.geometry import MigInstance

MACHINE = machine_from_file(Path(__file__).parents[2] / "topologies" / "4xa100-pcie-nvlink-pairs.yaml")
A, B, C, D = (gpu.uuid for gpu in MACHINE.gpus)
SLICE = "MIG-41b35f3d-8a1f-5e93-b0ac-3a1e3f0c2e33"
NODE = Snapshot(
    MACHINE,
    minor_numbers={A: 0, B: 1, C: 2, D: 5},
    sharing={D: CurrentSharing(Sharing("MIG", mig_layout=("1g.10gb",)))},
    mig_instances={D: (MigInstance(SLICE, "1g.10gb", 0, 1, 7, 0, 9856),)},
)
MINORS = """config 1
monitor 2
gpu5/gi7/access 66
gpu5/gi7/ci0/access 67
gpu5/gi8/access 75
"""
CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm")
EVERYTHING = {
    *CONTROL, "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia5",
    "/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67",
}  # fmt: skip
HOST = HostNodes(EVERYTHING.__contains__, parse_mig_minors(MINORS))
KNOWN = (A, B, C, D, SLICE)


def given(
    *strategies: Strategy, devices: Iterable[str], snapshot: Snapshot = NODE, resource: str = GPU_RESOURCE
) -> Grant:
    return grant(snapshot, resource, list(devices), strategies, HOST, KNOWN)


@pytest.mark.parametrize(
    ("strategies", "visible", "nodes", "names"),
    [
        pytest.param([Strategy.ENVVAR], f"{A},{C}", [], [], id="by variable"),
        pytest.param([Strategy.CDI_CRI], "void", [], [A, C], id="by CDI: and not by the variable"),
        pytest.param([Strategy.ENVVAR, Strategy.CDI_CRI], f"{A},{C}", [], [A, C], id="by both"),
        pytest.param(
            [Strategy.ENVVAR, Strategy.DEVICE_NODES],
            f"{A},{C}",
            [*CONTROL, "/dev/nvidia0", "/dev/nvidia2"],
            [],
            id="by nodes that exist",
        ),
    ],
)
def test_whole_gpus_come_in_the_order_of_the_machine(
    strategies: list[Strategy], visible: str, nodes: list[str], names: list[str]
) -> None:
    found = given(*strategies, devices=[C, A])
    assert found.environment == {"NVIDIA_VISIBLE_DEVICES": visible, "MCP2026_GPU_UUIDS": f"{A},{C}"}
    assert list(found.device_nodes) == nodes
    assert list(found.cdi_devices) == [f"mcp2026.io/gpu={uuid}" for uuid in names]
    assert found.mounts == ()


def test_a_mig_device_comes_with_the_nodes_that_open_it() -> None:
    found = given(Strategy.CDI_CRI, Strategy.DEVICE_NODES, devices=[SLICE], resource="mcp2026.io/mig-1g.10gb")
    assert found.cdi_devices == (f"mcp2026.io/gpu={SLICE}",)
    assert found.device_nodes == (
        *CONTROL, "/dev/nvidia5", "/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67",
    )  # fmt: skip
    assert found.environment["CUDA_VISIBLE_DEVICES"] == SLICE


def test_a_device_that_cdi_does_not_know_is_left_to_the_variable() -> None:
    found = grant(NODE, GPU_RESOURCE, [A], [Strategy.CDI_CRI], HOST, in_cdi=[B])
    assert not found.cdi_devices
    assert found.environment["NVIDIA_VISIBLE_DEVICES"] == A


def test_parts_of_a_gpu_are_given_by_their_gpu() -> None:
    shared = replace(NODE, sharing={A: CurrentSharing(Sharing("TimeSlice"))})
    found = given(
        Strategy.CDI_CRI, devices=[f"{A}::1", f"{A}::0"], snapshot=shared, resource=GPU_SHARED_RESOURCE
    )
    assert found.cdi_devices == (f"mcp2026.io/gpu={A}",)


def by_mode(mode: str, unit: str = "Replica", **fields: Any) -> Snapshot:
    sharing = CurrentSharing(Sharing(mode, unit))  # type: ignore[arg-type]  # from a table
    return replace(NODE, sharing=dict.fromkeys((A, B, C, D), sharing), **fields)


@pytest.mark.parametrize(
    ("snapshot", "resource", "devices", "error"),
    [
        pytest.param(
            by_mode("TimeSlice", "Memory"), GPU_MEMORY_RESOURCE, [f"{A}::m0", f"{B}::m0"], UnsharableSetError,
            id="GiB of two GPUs in turns",
        ),
        pytest.param(
            by_mode("MPS"), GPU_SHARED_RESOURCE, [f"{A}::0", f"{B}::0"], SharesOfSeveralGpusError,
            id="shares of two GPUs through MPS",
        ),
        pytest.param(
            by_mode("TimeSlice", placing=SharePlacing(distinct_only=True)),
            GPU_SHARED_RESOURCE, [f"{A}::0", f"{A}::1"], SharesOfOneGpuError,
            id="two shares of one GPU where distinct ones are wanted",
        ),
    ],
)  # fmt: skip
def test_what_one_container_cannot_use_together_is_refused(
    snapshot: Snapshot, resource: str, devices: list[str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        given(Strategy.ENVVAR, devices=devices, snapshot=snapshot, resource=resource)


# ---- the specification ----

NODE_SCHEMA = {
    "type": "object",
    "required": ["path"],
    "additionalProperties": False,
    "properties": {
        "path": {"type": "string", "pattern": "^/dev/"},
        "hostPath": {"type": "string"},
        "type": {"enum": ["b", "c", "u", "p"]},
        "major": {"type": "integer"},
        "minor": {"type": "integer"},
        "fileMode": {"type": "integer"},
        "permissions": {"type": "string", "pattern": "^[rwm]+$"},
        "uid": {"type": "integer", "minimum": 0},
        "gid": {"type": "integer", "minimum": 0},
    },
}
EDITS_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "minProperties": 1,
    "properties": {
        "env": {"type": "array", "items": {"type": "string", "pattern": "^[^=]+="}},
        "deviceNodes": {"type": "array", "items": NODE_SCHEMA},
        "mounts": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["hostPath", "containerPath"],
                "additionalProperties": False,
                "properties": {
                    "hostPath": {"type": "string", "minLength": 1},
                    "containerPath": {"type": "string", "minLength": 1},
                    "options": {"type": "array", "items": {"type": "string"}},
                    "type": {"type": "string"},
                },
            },
        },
        "hooks": {"type": "array"},
    },
}
CDI_SCHEMA = {
    "type": "object",
    "required": ["cdiVersion", "kind", "devices"],
    "additionalProperties": False,
    "properties": {
        "cdiVersion": {"const": "0.5.0"},
        "kind": {"type": "string", "pattern": r"^[a-z0-9][-.a-z0-9]*/[A-Za-z][-_A-Za-z0-9]*$"},
        "annotations": {"type": "object"},
        "containerEdits": EDITS_SCHEMA,
        "devices": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "containerEdits"],
                "additionalProperties": False,
                "properties": {
                    "name": {"type": "string", "pattern": "^[A-Za-z0-9]([-_.:A-Za-z0-9]*[A-Za-z0-9])?$"},
                    "annotations": {"type": "object"},
                    "containerEdits": EDITS_SCHEMA,
                },
            },
        },
    },
}
"""What the text of SPEC.md 0.5.0 says of the Container Device Interface
(github.com/cncf-tags/container-device-interface). Stricter than the public schema, which refuses no unknown
field and no name."""


@pytest.mark.parametrize("libraries", ["", "/home/kubernetes/bin/nvidia/lib64"])
def test_the_specification_is_as_cdi_asks(libraries: str) -> None:
    document = specification(NODE, HOST, libraries)
    jsonschema.validate(document, CDI_SCHEMA)
    assert device_names(document) == set(KNOWN)
    (mig,) = [device for device in document["devices"] if device["name"] == SLICE]
    assert [node["path"] for node in mig["containerEdits"]["deviceNodes"]] == [
        "/dev/nvidia5", "/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67",
    ]  # fmt: skip
    assert [node["path"] for node in document["containerEdits"]["deviceNodes"]] == list(CONTROL)
    assert bool(document["containerEdits"].get("mounts")) == bool(libraries)


def test_a_host_without_nodes_has_a_specification_without_devices() -> None:
    document = specification(NODE, HostNodes(lambda _: False))
    jsonschema.validate(document, CDI_SCHEMA)
    assert document["devices"] == []


def test_a_uuid_that_is_no_name_in_cdi_is_left_out() -> None:
    old = MigInstance("MIG-GPU-0123/7/0", "1g.10gb", 0, 1, 7, 0)
    document = specification(replace(NODE, mig_instances={D: (old,)}), HOST)
    assert device_names(document) == {A, B, C, D}


def test_the_file_is_whole_readable_for_all_and_written_only_on_change(tmp_path: Path) -> None:
    folder = tmp_path / "cdi"
    file = SpecificationFile(folder)
    document = specification(NODE, HOST)
    file.write(document)
    (path,) = folder.iterdir()
    assert json.loads(path.read_text()) == document
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    first = path.stat().st_ino
    file.write(specification(NODE, HOST))
    assert path.stat().st_ino == first
    path.unlink()
    file.write(document)
    assert path.exists(), "removed by someone else: it is back"
    file.write(specification(replace(NODE, mig_instances={}), HOST))
    assert device_names(json.loads(path.read_text())) == {A, B, C, D} == file.names
    assert [each.name for each in folder.iterdir()] == ["mcp2026.io-gpu.json"]
    file.remove()
    assert not list(folder.iterdir())


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CdiDirectoryError, match="file/cdi cannot be written"):
        SpecificationFile(tmp_path / "file" / "cdi").write(specification(NODE, HOST))
