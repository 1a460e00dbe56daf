"""How a GPU is, who uses it and who may: asked through the unchanged pynvml of our fake of the driver."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mcp2026.device_plugin.driver import ComputeMode, GpuProcess, Vitals
from tests.fakes.nvml import FakeNvml, link_library
from tests.fakes.nvml.driver_process import RemoteDriver, RemoteError

pytest_plugins = ["tests.fakes.nvml.fixtures"]

TOPOLOGIES = Path(__file__).parents[1] / "topologies"
A100, T4 = "4xa100-pcie-nvlink-pairs", "8xt4-pcie-2socket"

Start = Callable[[FakeNvml | None], RemoteDriver]
Fake = Callable[[str], FakeNvml]


def opened(nvml: FakeNvml, driver_of: Start) -> tuple[RemoteDriver, list[str]]:
    driver = driver_of(nvml).open()
    return driver, [gpu.uuid for gpu in driver.read().machine.gpus]


# ---- vitals ----


def test_a_gpu_at_rest(fake: Fake, driver_of: Start) -> None:
    driver, uuids = opened(fake(A100), driver_of)
    assert driver.vitals(uuids[1]) == Vitals(
        temperature=35, uncorrected_ecc_errors=0, memory_used_mib=0, busy=0
    )


def test_what_changes_is_seen_by_the_next_call_and_of_this_gpu_alone(fake: Fake, driver_of: Start) -> None:
    nvml = fake(A100)
    driver, uuids = opened(nvml, driver_of)
    before = driver.vitals(uuids[0])

    nvml.set_temperature(1, 92, slowdown=True)
    nvml.set_memory_used(1, 30000)
    nvml.set_busy(1, 87)
    nvml.set_uncorrected_ecc_errors(1, 3)

    assert driver.vitals(uuids[1]) == Vitals(
        temperature=92, thermal_slowdown=True, memory_used_mib=30000, busy=87, uncorrected_ecc_errors=3
    )
    assert driver.vitals(uuids[0]) == before


@pytest.mark.parametrize(
    ("reasons", "slowed"),
    [
        pytest.param(0x1, False, id="an idle GPU"),
        pytest.param(0x4, False, id="a power cap"),
        pytest.param(0x8, False, id="a hardware slowdown whose reason is not told"),
        pytest.param(0x20, True, id="heat, by software"),
        pytest.param(0x40 | 0x8, True, id="heat, by hardware"),
        pytest.param(0x80, False, id="a power brake"),
    ],
)
def test_clocks_are_slowed_by_heat(reasons: int, slowed: bool, fake: Fake, driver_of: Start) -> None:
    nvml = fake(A100)
    driver, uuids = opened(nvml, driver_of)
    nvml.set_fact(0, "clocks_event_reasons", reasons)
    assert driver.vitals(uuids[0]).thermal_slowdown is slowed


def test_an_older_driver_tells_of_heat_by_the_older_name(
    tmp_path: Path, nvml_objects: Path, driver_of: Start
) -> None:
    library = link_library(tmp_path, nvml_objects, ["nvmlDeviceGetCurrentClocksEventReasons"])
    nvml = FakeNvml(tmp_path, TOPOLOGIES / f"{A100}.yaml", library=library)
    nvml.set_temperature(0, 90, slowdown=True)
    driver, uuids = opened(nvml, driver_of)
    assert driver.vitals(uuids[0]).thermal_slowdown


@pytest.mark.parametrize(
    ("machine", "fact", "says"),
    [
        pytest.param(
            A100, "remapping_pending", "row remapping is pending: reset it", id="rows, since Ampere"
        ),
        pytest.param(A100, "remapping_failed", "has to be exchanged", id="rows that cannot be remapped"),
        pytest.param(
            T4, "retirement_pending", "page retirement is pending: reset it", id="pages, before Ampere"
        ),
    ],
)
def test_a_repair_that_waits_for_a_reset_is_told(
    machine: str, fact: str, says: str, fake: Fake, driver_of: Start
) -> None:
    nvml = fake(machine)
    driver, uuids = opened(nvml, driver_of)
    assert driver.vitals(uuids[2]).pending_repair == ""
    nvml.set_fact(2, fact, 1)
    assert says in driver.vitals(uuids[2]).pending_repair


@pytest.mark.parametrize(
    ("state", "status", "says"),
    [
        pytest.param(0, 0, "", id="a GPU that needs no fabric"),
        pytest.param(1, 0, "has not joined", id="the fabric manager does not run"),
        pytest.param(2, 0, "has not joined", id="joining"),
        pytest.param(3, 0, "", id="joined"),
        pytest.param(3, 999, "could not join the NVSwitch fabric (NVML error 999)", id="joining failed"),
        pytest.param(77, 0, "", id="a state that does not exist"),
    ],
)
def test_a_gpu_that_is_not_part_of_the_fabric_is_told(
    state: int, status: int, says: str, fake: Fake, driver_of: Start
) -> None:
    nvml = fake("hgx-h100-8gpu")
    driver, uuids = opened(nvml, driver_of)
    assert driver.vitals(uuids[6]).fabric_failure == ""
    nvml.set_fact(6, "fabric_state", state)
    nvml.set_fact(6, "fabric_status", status)
    failure = driver.vitals(uuids[6]).fabric_failure
    assert says in failure
    assert bool(says) == bool(failure)


def test_the_action_that_the_driver_advises_is_told(fake: Fake, driver_of: Start) -> None:
    nvml = fake(A100)
    driver, uuids = opened(nvml, driver_of)
    nvml.set_fact(3, "recovery_action", 4)
    assert driver.vitals(uuids[3]).recovery_action == "drain the GPU, then reset it"
    nvml.set_fact(3, "recovery_action", 99)
    assert driver.vitals(uuids[3]).recovery_action == ""


@pytest.mark.parametrize(
    ("function", "field", "values"),
    [
        ("nvmlDeviceGetTemperature", "temperature", [-1, 201]),
        ("nvmlDeviceGetMemoryInfo", "memory_used_mib", [-1, 1 << 60]),
        ("nvmlDeviceGetTotalEccErrors", "uncorrected_ecc_errors", [-1]),
        ("nvmlDeviceGetUtilizationRates", "busy", [-1, 101]),
    ],
)
def test_a_number_that_cannot_be_true_is_unknown(
    function: str, field: str, values: list[int], fake: Fake, driver_of: Start
) -> None:
    nvml = fake(A100)
    driver, uuids = opened(nvml, driver_of)
    for value in values:
        nvml.heal()
        nvml.answer_garbage(function, 1, value)
        vitals = driver.vitals(uuids[1])
        assert getattr(vitals, field) is None, value
        assert not vitals.failure


def test_a_gpu_that_is_gone_is_told_and_a_driver_that_is_gone_is_raised(fake: Fake, driver_of: Start) -> None:
    nvml = fake(A100)
    driver, uuids = opened(nvml, driver_of)
    nvml.fail("nvmlDeviceGetTemperature", 1, "NVML_ERROR_GPU_IS_LOST")
    assert driver.vitals(uuids[1]).failure == "GPU is lost"
    assert driver.vitals("GPU-of-another-node").failure == "Not Found"

    nvml.fail("*", "*", "NVML_ERROR_DRIVER_NOT_LOADED")
    with pytest.raises(RemoteError, match=r"DriverNotRunningError.*Driver Not Loaded"):
        driver.vitals(uuids[0])


# ---- processes ----


def test_processes_are_told_with_their_memory_and_mps_clients_among_them(
    fake: Fake, driver_of: Start
) -> None:
    nvml = fake(A100)
    driver, uuids = opened(nvml, driver_of)
    assert driver.processes(uuids[0]) == ()

    nvml.set_process(0, 4242, 1500)
    nvml.set_process(0, 77, None, mps=True)
    nvml.set_process(1, 1, 10)

    assert driver.processes(uuids[0]) == (GpuProcess(77, None), GpuProcess(4242, 1500))
    assert driver.vitals(uuids[0]).memory_used_mib == 1500
    nvml.end_process(0, 4242)
    assert driver.processes(uuids[0]) == (GpuProcess(77, None),)


def test_many_processes_are_all_told(fake: Fake, driver_of: Start) -> None:
    nvml = fake(A100)
    driver, uuids = opened(nvml, driver_of)
    for pid in range(1, 101):
        nvml.set_process(2, pid, pid)
    assert driver.processes(uuids[2]) == tuple(GpuProcess(pid, pid) for pid in range(1, 101))


@pytest.mark.parametrize(
    "missing", ["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3"]
)
def test_an_older_driver_tells_of_processes(
    missing: str, tmp_path: Path, nvml_objects: Path, driver_of: Start
) -> None:
    library = link_library(tmp_path, nvml_objects, [missing])
    nvml = FakeNvml(tmp_path, TOPOLOGIES / f"{A100}.yaml", library=library)
    nvml.set_process(0, 5, 100)
    driver, uuids = opened(nvml, driver_of)
    assert driver.processes(uuids[0]) == (GpuProcess(5, 100),)


def test_an_absurd_number_of_processes_is_an_error_and_costs_no_memory(fake: Fake, driver_of: Start) -> None:
    nvml = fake(A100)
    driver, uuids = opened(nvml, driver_of)
    nvml.answer_garbage("nvmlDeviceGetComputeRunningProcesses_v3", 0, 0x7FFFFFFF)
    with pytest.raises(RemoteError, match=r"GpuCallError.*tells of 2147483647 processes"):
        driver.processes(uuids[0])


def test_a_driver_that_does_not_tell_processes_says_so_and_not_that_there_are_none(
    fake: Fake, driver_of: Start
) -> None:
    nvml = fake(A100)
    driver, uuids = opened(nvml, driver_of)
    nvml.fail("nvmlDeviceGetComputeRunningProcesses_v3", 0, "NVML_ERROR_NOT_SUPPORTED")
    with pytest.raises(RemoteError, match=r"GpuCallError.*Not Supported"):
        driver.processes(uuids[0])


# ---- compute modes ----


def test_the_compute_mode_is_kept_by_the_gpu_and_not_by_the_plugin(fake: Fake, driver_of: Start) -> None:
    nvml = fake(A100)
    driver, uuids = opened(nvml, driver_of)
    assert driver.compute_mode(uuids[1]) is ComputeMode.DEFAULT

    driver.set_compute_mode(uuids[1], ComputeMode.EXCLUSIVE_PROCESS)
    driver.end()

    after, _ = opened(nvml, driver_of)
    modes = [after.compute_mode(uuid) for uuid in uuids]
    assert modes == [ComputeMode.DEFAULT, ComputeMode.EXCLUSIVE_PROCESS, *[ComputeMode.DEFAULT] * 2]


def test_a_mode_that_holds_already_is_not_set_again(fake: Fake, driver_of: Start) -> None:
    nvml = fake(A100)
    driver, uuids = opened(nvml, driver_of)
    driver.set_compute_mode(uuids[0], ComputeMode.DEFAULT)
    assert "nvmlDeviceSetComputeMode" not in nvml.calls()


def test_a_compute_mode_that_may_not_be_set_says_so(fake: Fake, driver_of: Start) -> None:
    nvml = fake(A100)
    driver, uuids = opened(nvml, driver_of)
    nvml.fail("nvmlDeviceSetComputeMode", "*", "NVML_ERROR_NO_PERMISSION")
    with pytest.raises(RemoteError, match=f"GpuCallError: {uuids[0]}: nvmlDeviceSetComputeMode: Insuff"):
        driver.set_compute_mode(uuids[0], ComputeMode.PROHIBITED)


def test_a_compute_mode_that_does_not_exist_is_an_error(fake: Fake, driver_of: Start) -> None:
    nvml = fake(A100)
    driver, uuids = opened(nvml, driver_of)
    nvml.answer_garbage("nvmlDeviceGetComputeMode", 0, 9)
    with pytest.raises(RemoteError, match=r"GpuCallError.*there is no mode 9"):
        driver.compute_mode(uuids[0])
