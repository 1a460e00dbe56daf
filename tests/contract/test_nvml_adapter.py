"""The NVML adapter reads through the unchanged pynvml what our fake of the driver's library says."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp2026.device_plugin.adapters.nvml import normal_bus_id, numa_node_from_sysfs
from mcp2026.device_plugin.errors import NvmlError
from mcp2026.topology.machine import Machine, machine_from_file
from tests.fakes.nvml import FakeNvml, compile_machine

pytest_plugins = ["tests.fakes.plugin_fixtures"]

TOPOLOGIES = Path(__file__).parents[1] / "topologies"
FIXTURES = sorted(TOPOLOGIES.glob("*.yaml"))

READ = """
import json, sys
from dataclasses import asdict
from mcp2026.device_plugin.adapters.nvml import NvmlDriver
from mcp2026.device_plugin.errors import NvmlError
try:
    with NvmlDriver.open() as driver:
        reading = driver.read(sys.argv[1])
        print(json.dumps({"machine": asdict(reading.machine), "unreadable": reading.unreadable,
                          "failures": [driver.failure(gpu.uuid) for gpu in reading.machine.gpus]}))
except NvmlError as error:
    print(json.dumps({"error": type(error).__name__, "text": str(error)}))
"""


@pytest.fixture
def fake(tmp_path: Path, nvml_library: Path) -> Callable[[str], FakeNvml]:
    return lambda name: FakeNvml(tmp_path / name, TOPOLOGIES / f"{name}.yaml", library=nvml_library)


def read(environment: dict[str, str], name: str = "node") -> dict[str, Any]:
    """Read in a process of its own: pynvml keeps the library that it loaded first."""
    clean = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [sys.executable, "-c", READ, name],
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def as_json(machine: Machine) -> Any:
    return json.loads(json.dumps(asdict(machine)))


@pytest.mark.parametrize(
    "path", FIXTURES, ids=lambda path: f"{path.stem} read by pynvml is the machine of its file"
)
def test_every_machine_is_read_as_its_file_describes_it(
    path: Path, tmp_path: Path, nvml_library: Path
) -> None:
    fake = FakeNvml(tmp_path, path, library=nvml_library)
    expected = machine_from_file(path)

    answer = read(fake.environment, expected.name)

    assert answer["machine"] == as_json(expected)
    assert answer["unreadable"] == {}
    assert answer["failures"] == [None] * len(expected.gpus)


def test_no_driver_library_says_what_to_do() -> None:
    answer = read({})
    assert answer["error"] == "NoDriverLibraryError"
    assert "libnvidia-ml.so.1" in answer["text"]
    assert "install the driver" in answer["text"]


@pytest.mark.parametrize(
    "error",
    ["NVML_ERROR_DRIVER_NOT_LOADED", "NVML_ERROR_LIB_RM_VERSION_MISMATCH", "NVML_ERROR_NO_PERMISSION"],
)
def test_a_driver_that_does_not_start_says_why(error: str, fake: Callable[[str], FakeNvml]) -> None:
    driver = fake("1xt4-edge")
    driver.fail("nvmlInitWithFlags", "*", error)
    answer = read(driver.environment)
    assert answer["error"] == "DriverNotRunningError"
    assert "nvidia-smi" in answer["text"]


def test_a_lost_gpu_is_left_out_and_the_others_keep_their_indices(fake: Callable[[str], FakeNvml]) -> None:
    driver = fake("4xa100-pcie-nvlink-pairs")
    driver.fail("*", 1, "NVML_ERROR_GPU_IS_LOST")

    answer = read(driver.environment)

    assert [gpu["index"] for gpu in answer["machine"]["gpus"]] == [0, 2, 3]
    assert answer["unreadable"] == {"1": "GPU is lost"}
    assert answer["machine"]["gpus"][0]["nvlinks"] == [], "a link to a GPU that is not shown joins nothing"
    assert [len(gpu["nvlinks"]) for gpu in answer["machine"]["gpus"]] == [0, 12, 12]
    assert answer["machine"]["pcie_ancestors"] == [[None, 50, 50], [50, None, 40], [50, 40, None]]


def test_a_gpu_lost_while_its_links_are_read_is_left_out(fake: Callable[[str], FakeNvml]) -> None:
    driver = fake("hgx-h100-8gpu")
    driver.fail("nvmlDeviceGetArchitecture", 5, "NVML_ERROR_GPU_IS_LOST")
    answer = read(driver.environment)
    assert [gpu["index"] for gpu in answer["machine"]["gpus"]] == [0, 1, 2, 3, 4, 6, 7]
    assert len(answer["machine"]["pcie_ancestors"]) == 7


def test_an_error_of_a_probe_names_the_gpu_that_fails(fake: Callable[[str], FakeNvml]) -> None:
    driver = fake("4xl40s-pcie-2socket")
    driver.fail("nvmlDeviceGetHandleByUUID", 2, "NVML_ERROR_GPU_IS_LOST")
    assert read(driver.environment)["failures"] == [None, None, "GPU is lost", None]


@pytest.mark.parametrize(
    "missing",
    [
        pytest.param(("nvmlDeviceGetNvLinkRemoteDeviceType",), id="a driver that tells no remote type"),
        pytest.param(("nvmlDeviceGetArchitecture",), id="a driver that tells no architecture"),
        pytest.param(("nvmlDeviceGetMigMode", "nvmlDeviceGetNumaNodeId"), id="a driver without newer calls"),
    ],
)
def test_an_older_driver_is_read_by_what_it_has(missing: tuple[str, ...], tmp_path: Path) -> None:
    path = TOPOLOGIES / "dgx-1v-8xv100.yaml"
    expected = machine_from_file(path)
    assert read(FakeNvml(tmp_path, path, missing).environment, expected.name)["machine"] == as_json(expected)


def test_without_memory_affinity_and_sysfs_the_numa_node_is_unknown(tmp_path: Path) -> None:
    path = TOPOLOGIES / "4xl40s-pcie-2socket.yaml"
    expected = machine_from_file(path)
    gpus = tuple(replace(gpu, numa_node=None) for gpu in expected.gpus)
    answer = read(FakeNvml(tmp_path, path, ["nvmlDeviceGetMemoryAffinity"]).environment, expected.name)
    assert answer["machine"] == as_json(replace(expected, gpus=gpus))


@pytest.mark.parametrize("function", ["nvmlDeviceGetCount_v2", "nvmlDeviceGetUUID"])
def test_a_driver_too_old_to_be_read_says_so(function: str, tmp_path: Path) -> None:
    answer = read(FakeNvml(tmp_path, TOPOLOGIES / "1xt4-edge.yaml", [function]).environment)
    assert answer["error"] == "DriverTooOldError"
    assert "595.91.07" in answer["text"]
    assert "update the driver" in answer["text"]


def test_links_whose_other_end_a_virtual_machine_hides_count_as_links_to_a_switch(
    fake: Callable[[str], FakeNvml],
) -> None:
    driver = fake("hgx-h100-8gpu")
    driver.fail("nvmlDeviceGetNvLinkRemoteDeviceType", "*", "NVML_ERROR_NOT_SUPPORTED")
    driver.fail("nvmlDeviceGetNvLinkRemotePciInfo_v2", "*", "NVML_ERROR_NOT_SUPPORTED")
    expected = machine_from_file(TOPOLOGIES / "hgx-h100-8gpu.yaml")
    assert read(driver.environment, expected.name)["machine"] == as_json(expected)


def test_a_virtual_machine_that_hides_direct_peers_gets_no_false_connection(
    tmp_path: Path, nvml_library: Path
) -> None:
    path = TOPOLOGIES / "4xa100-pcie-nvlink-pairs.yaml"
    fake = FakeNvml(tmp_path, path, library=nvml_library)
    document = yaml.safe_load(path.read_text())
    document["gpus"] = [document["gpus"][0], document["gpus"][2] | {"index": 1}]
    for gpu, hidden in zip(document["gpus"], ("00000000:65:00.0", "00000000:E3:00.0"), strict=True):
        gpu["nvlinks"] = []
        fake_links = [f"link {gpu['index']} {number} 0 4 {hidden}" for number in range(12)]
        gpu["links"] = fake_links
    document["pcie_ancestor"] = [["SELF", "SYSTEM"], ["SYSTEM", "SELF"]]
    lines = [line for gpu in document["gpus"] for line in gpu["links"]]
    fake.machine.write_text(compile_machine(document) + "\n".join(lines) + "\n")

    gpus = read(fake.environment)["machine"]["gpus"]

    assert [gpu["nvlinks"] for gpu in gpus] == [[], []]


def test_common_ancestors_that_the_driver_does_not_tell_are_the_farthest(
    fake: Callable[[str], FakeNvml],
) -> None:
    driver = fake("4xl40s-pcie-2socket")
    driver.fail("nvmlDeviceGetTopologyCommonAncestor", "*", "NVML_ERROR_NOT_SUPPORTED")
    matrix = read(driver.environment)["machine"]["pcie_ancestors"]
    assert matrix == [[None if a == b else 50 for b in range(4)] for a in range(4)]


def test_a_gpu_that_mig_splits_is_not_offered_as_a_whole_one(tmp_path: Path, nvml_library: Path) -> None:
    path = TOPOLOGIES / "dgx-a100-8xa100.yaml"
    fake = FakeNvml(tmp_path, path, library=nvml_library)
    document = yaml.safe_load(path.read_text())
    document["gpus"][3]["mig_enabled"] = True
    fake.machine.write_text(compile_machine(document))
    answer = read(fake.environment)
    assert [gpu["index"] for gpu in answer["machine"]["gpus"]] == [0, 1, 2, 4, 5, 6, 7]
    assert "MIG" in answer["unreadable"]["3"]


def test_a_gpu_that_shares_the_cpus_memory_is_read_and_healthy(fake: Callable[[str], FakeNvml]) -> None:
    driver = fake("1xgh200")
    driver.fail("nvmlDeviceGetMemoryInfo", "*", "NVML_ERROR_NOT_SUPPORTED")
    answer = read(driver.environment)
    assert [gpu["memory_mib"] for gpu in answer["machine"]["gpus"]] == [0]
    assert answer["failures"] == [None]


@pytest.mark.parametrize(
    "function", ["nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetCount_v2"]
)
def test_a_driver_that_fails_while_it_is_read_says_so(function: str, fake: Callable[[str], FakeNvml]) -> None:
    driver = fake("1xt4-edge")
    driver.fail(function, "*", "NVML_ERROR_UNKNOWN")
    assert read(driver.environment)["error"] == "DriverNotRunningError"


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        pytest.param("0000:3b:00.0", "00000000:3B:00.0", id="a short domain in lower case"),
        pytest.param("00000010:29:00.0", "00000010:29:00.0", id="a domain that is not zero"),
        pytest.param(b"10000:E1:00.0", "00010000:E1:00.0", id="a domain of five digits, as bytes"),
    ],
)
def test_bus_ids_get_domains_of_eight_digits(given: str | bytes, normal: str) -> None:
    assert normal_bus_id(given) == normal


def test_a_bus_id_that_is_none_is_refused() -> None:
    with pytest.raises(NvmlError, match="not-a-bus"):
        normal_bus_id("not-a-bus")


@pytest.mark.parametrize(
    ("content", "node"),
    [
        pytest.param("1\n", 1, id="a node"),
        pytest.param("-1\n", None, id="a kernel that knows no node"),
        pytest.param(None, None, id="no such device"),
    ],
)
def test_sysfs_tells_the_numa_node(content: str | None, node: int | None, tmp_path: Path) -> None:
    device = tmp_path / "bus/pci/devices/0010:3b:00.0"
    device.mkdir(parents=True)
    if content is not None:
        (device / "numa_node").write_text(content)
    assert numa_node_from_sysfs(tmp_path, "00000010:3B:00.0") == node
