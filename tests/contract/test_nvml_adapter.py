"""The NVML adapter reads through the unchanged pynvml what our fake of the driver's library says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp2026.topology.machine import Machine, PcieAncestor, machine_from_file
from tests.fakes.nvml import FakeNvml, compile_machine, link_library
from tests.fakes.nvml.driver_process import RemoteDriver, RemoteError

pytest_plugins = ["tests.fakes.nvml.fixtures"]

TOPOLOGIES = Path(__file__).parents[1] / "topologies"
FIXTURES = sorted(TOPOLOGIES.glob("*.yaml"))
OFF_FABRIC = "hgx-b200-8gpu-one-off-fabric"

Start = Callable[[FakeNvml | None], RemoteDriver]
Fake = Callable[[str], FakeNvml]


def machine_of(name: str) -> Machine:
    """Return the machine of a fixture, with the links that are known to be down."""
    machine = machine_from_file(TOPOLOGIES / f"{name}.yaml")
    if name != OFF_FABRIC:
        return machine
    gpus = list(machine.gpus)
    gpus[2] = replace(gpus[2], inactive_links=tuple(range(18)))
    return replace(machine, gpus=tuple(gpus))


@pytest.mark.parametrize(
    "name", [path.stem for path in FIXTURES], ids=lambda name: f"{name} read by pynvml is as its file says"
)
def test_every_machine_is_read_as_its_file_describes_it(name: str, fake: Fake, driver_of: Start) -> None:
    expected = machine_of(name)
    driver = driver_of(fake(name)).open()

    reading = driver.read(expected.name)

    assert reading.machine == expected
    assert reading.unreadable == {}
    assert reading.mig_instances == {}
    assert list(reading.minor_numbers.values()) == list(range(len(expected.gpus)))
    assert all(driver.failure(gpu.uuid) is None for gpu in expected.gpus)
    vitals = [driver.vitals(gpu.uuid) for gpu in expected.gpus]
    assert [one.inactive_links for one in vitals] == [gpu.inactive_links for gpu in expected.gpus]
    assert not any(one.failure for one in vitals)


def test_compute_capabilities_are_read(fake: Fake, driver_of: Start) -> None:
    expected = {"1xt4-edge": (7, 5), "4xl40s-pcie-2socket": (8, 9), OFF_FABRIC: (10, 0)}
    for name, capability in expected.items():
        reading = driver_of(fake(name)).open().read()
        assert set(reading.compute_capabilities.values()) == {capability}


# ---- no driver, or an old one ----


def test_no_driver_library_says_what_to_do(driver_of: Start) -> None:
    with pytest.raises(RemoteError, match=r"NoDriverLibraryError.*libnvidia-ml\.so\.1.*install the driver"):
        driver_of(None).open()


@pytest.mark.parametrize(
    "error",
    ["NVML_ERROR_DRIVER_NOT_LOADED", "NVML_ERROR_LIB_RM_VERSION_MISMATCH", "NVML_ERROR_NO_PERMISSION"],
)
def test_a_driver_that_does_not_start_says_why(error: str, fake: Fake, driver_of: Start) -> None:
    driver = fake("1xt4-edge")
    driver.fail("nvmlInitWithFlags", "*", error)
    with pytest.raises(RemoteError, match=r"DriverNotRunningError.*nvidia-smi"):
        driver_of(driver).open()


@pytest.mark.parametrize(
    "function", ["nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetCount_v2"]
)
def test_a_driver_that_fails_while_it_is_read_says_so(function: str, fake: Fake, driver_of: Start) -> None:
    driver = fake("1xt4-edge")
    driver.fail(function, "*", "NVML_ERROR_UNKNOWN")
    with pytest.raises(RemoteError, match="DriverNotRunningError"):
        driver_of(driver).open().read()


@pytest.mark.parametrize(
    "missing",
    [
        pytest.param(("nvmlDeviceGetNvLinkRemoteDeviceType",), id="a driver that tells no remote type"),
        pytest.param(("nvmlDeviceGetArchitecture",), id="a driver that tells no architecture"),
        pytest.param(("nvmlDeviceGetMigMode", "nvmlDeviceGetNumaNodeId"), id="a driver without newer calls"),
    ],
)
def test_an_older_driver_is_read_by_what_it_has(
    missing: tuple[str, ...], tmp_path: Path, nvml_objects: Path, driver_of: Start
) -> None:
    path = TOPOLOGIES / "dgx-1v-8xv100.yaml"
    expected = machine_from_file(path)
    older = FakeNvml(tmp_path, path, library=link_library(tmp_path, nvml_objects, missing))
    assert driver_of(older).open().read(expected.name).machine == expected


def test_without_memory_affinity_and_sysfs_the_numa_node_is_unknown(
    tmp_path: Path, nvml_objects: Path, driver_of: Start
) -> None:
    path = TOPOLOGIES / "4xl40s-pcie-2socket.yaml"
    expected = machine_from_file(path)
    gpus = tuple(replace(gpu, numa_node=None) for gpu in expected.gpus)
    library = link_library(tmp_path, nvml_objects, ["nvmlDeviceGetMemoryAffinity"])
    reading = driver_of(FakeNvml(tmp_path, path, library=library)).open().read(expected.name)
    assert reading.machine == replace(expected, gpus=gpus)


@pytest.mark.parametrize("function", ["nvmlDeviceGetCount_v2", "nvmlDeviceGetUUID"])
def test_a_driver_too_old_to_be_read_says_so(
    function: str, tmp_path: Path, nvml_objects: Path, driver_of: Start
) -> None:
    library = link_library(tmp_path, nvml_objects, [function])
    driver = driver_of(FakeNvml(tmp_path, TOPOLOGIES / "1xt4-edge.yaml", library=library)).open()
    called = function.removesuffix("_v2")
    with pytest.raises(
        RemoteError, match=rf"DriverTooOldError.*595\.91\.07 has no {called}: update the driver"
    ):
        driver.read()


# ---- GPUs that do not answer ----


def test_a_lost_gpu_is_left_out_and_the_others_keep_their_indices(fake: Fake, driver_of: Start) -> None:
    nvml = fake("4xa100-pcie-nvlink-pairs")
    nvml.lose(1)

    reading = driver_of(nvml).open().read()

    assert [gpu.index for gpu in reading.machine.gpus] == [0, 2, 3]
    assert reading.unreadable == {1: "GPU is lost"}
    assert reading.machine.gpus[0].nvlinks == (), "a link to a GPU that is not shown joins nothing"
    assert [len(gpu.nvlinks) for gpu in reading.machine.gpus] == [0, 12, 12]
    far, near = PcieAncestor.SYSTEM, PcieAncestor.NODE
    assert reading.machine.pcie_ancestors == ((None, far, far), (far, None, near), (far, near, None))


def test_a_gpu_lost_while_its_links_are_read_is_left_out(fake: Fake, driver_of: Start) -> None:
    nvml = fake("hgx-h100-8gpu")
    nvml.fail("nvmlDeviceGetArchitecture", 5, "NVML_ERROR_GPU_IS_LOST")
    machine = driver_of(nvml).open().read().machine
    assert [gpu.index for gpu in machine.gpus] == [0, 1, 2, 3, 4, 6, 7]
    assert len(machine.pcie_ancestors) == 7


def test_a_gpu_that_comes_back_answers_and_is_read(fake: Fake, driver_of: Start) -> None:
    nvml = fake("4xa100-pcie-nvlink-pairs")
    nvml.lose(1)
    driver = driver_of(nvml).open()
    assert 1 in driver.read().unreadable
    assert not driver.answers(1)

    nvml.recover(1)

    assert driver.answers(1)
    assert driver.read(nvml.directory.name).machine == replace(
        machine_of("4xa100-pcie-nvlink-pairs"), name=nvml.directory.name
    )


def test_an_error_of_a_probe_names_the_gpu_that_fails(fake: Fake, driver_of: Start) -> None:
    nvml = fake("4xl40s-pcie-2socket")
    nvml.fail("nvmlDeviceGetHandleByUUID", 2, "NVML_ERROR_GPU_IS_LOST")
    driver = driver_of(nvml).open()
    uuids = [gpu.uuid for gpu in driver.read().machine.gpus]
    assert [driver.failure(uuid) for uuid in uuids] == [None, None, "GPU is lost", None]
    assert [driver.vitals(uuid).failure for uuid in uuids] == ["", "", "GPU is lost", ""]


def test_ancestors_that_the_driver_does_not_tell_are_the_farthest(fake: Fake, driver_of: Start) -> None:
    nvml = fake("4xl40s-pcie-2socket")
    nvml.fail("nvmlDeviceGetTopologyCommonAncestor", "*", "NVML_ERROR_NOT_SUPPORTED")
    matrix = driver_of(nvml).open().read().machine.pcie_ancestors
    assert matrix == tuple(tuple(None if a == b else PcieAncestor.SYSTEM for b in range(4)) for a in range(4))


def test_a_gpu_that_shares_the_cpus_memory_is_read_and_healthy(fake: Fake, driver_of: Start) -> None:
    nvml = fake("1xgh200")
    nvml.fail("nvmlDeviceGetMemoryInfo", "*", "NVML_ERROR_NOT_SUPPORTED")
    driver = driver_of(nvml).open()
    gpus = driver.read().machine.gpus
    assert [gpu.memory_mib for gpu in gpus] == [0]
    assert driver.failure(gpus[0].uuid) is None
    assert driver.vitals(gpus[0].uuid).memory_used_mib is None


# ---- links ----


def test_links_whose_other_end_a_virtual_machine_hides_count_as_links_to_a_switch(
    fake: Fake, driver_of: Start
) -> None:
    nvml = fake("hgx-h100-8gpu")
    nvml.fail("nvmlDeviceGetNvLinkRemoteDeviceType", "*", "NVML_ERROR_NOT_SUPPORTED")
    nvml.fail("nvmlDeviceGetNvLinkRemotePciInfo_v2", "*", "NVML_ERROR_NOT_SUPPORTED")
    expected = machine_from_file(TOPOLOGIES / "hgx-h100-8gpu.yaml")
    assert driver_of(nvml).open().read(expected.name).machine == expected


def test_a_virtual_machine_that_hides_direct_peers_gets_no_false_connection(
    tmp_path: Path, linked_nvml: Path, driver_of: Start
) -> None:
    document = document_of("4xa100-pcie-nvlink-pairs")
    document["gpus"] = [document["gpus"][0], document["gpus"][2] | {"index": 1}]
    for gpu in document["gpus"]:
        gpu["nvlinks"] = []
    document["pcie_ancestor"] = [["SELF", "SYSTEM"], ["SYSTEM", "SELF"]]
    nvml = FakeNvml(tmp_path, document, library=linked_nvml)
    hidden = ("00000000:65:00.0", "00000000:E3:00.0")
    links = [f"link {gpu} {number} 0 4 {bus}" for gpu, bus in enumerate(hidden) for number in range(12)]
    nvml.machine.write_text(compile_machine(document) + "\n".join(links) + "\n")

    gpus = driver_of(nvml).open().read().machine.gpus

    assert [gpu.nvlinks for gpu in gpus] == [(), ()]


def test_a_link_that_goes_down_is_told_by_vitals_and_the_next_reading(fake: Fake, driver_of: Start) -> None:
    nvml = fake("hgx-h100-8gpu")
    driver = driver_of(nvml).open()
    uuids = [gpu.uuid for gpu in driver.read().machine.gpus]

    nvml.link_down(3, 5)
    nvml.link_down(3, 17)

    assert driver.vitals(uuids[3]).inactive_links == (5, 17)
    assert driver.vitals(uuids[4]).inactive_links == ()
    gpus = driver.read().machine.gpus
    assert [gpu.inactive_links for gpu in gpus] == [(5, 17) if gpu.index == 3 else () for gpu in gpus]
    assert [link.link for link in gpus[3].nvlinks] == [n for n in range(18) if n not in (5, 17)]

    nvml.link_up(3, 5)
    nvml.link_up(3, 17)
    assert driver.vitals(uuids[3]).inactive_links == ()


def test_a_link_that_is_down_already_when_the_plugin_starts_is_told(fake: Fake, driver_of: Start) -> None:
    nvml = fake("4xa100-pcie-nvlink-pairs")
    for gpu in (2, 3):
        nvml.link_down(gpu, 7)
    gpus = driver_of(nvml).open().read().machine.gpus
    assert [gpu.inactive_links for gpu in gpus] == [(), (), (7,), (7,)]


def test_a_link_that_one_end_alone_calls_active_is_read_as_told(fake: Fake, driver_of: Start) -> None:
    nvml = fake("4xa100-pcie-nvlink-pairs")
    nvml.link_down(0, 4)
    gpus = driver_of(nvml).open().read().machine.gpus
    assert [len(gpu.nvlinks) for gpu in gpus] == [11, 12, 12, 12]
    assert gpus[0].inactive_links == (4,)


def document_of(name: str) -> dict[str, Any]:
    return yaml.safe_load((TOPOLOGIES / f"{name}.yaml").read_text())
