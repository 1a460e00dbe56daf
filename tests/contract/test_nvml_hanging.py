"""Calls into the driver that do not return: one GPU, several, all, and what becomes of the rest."""

import time
from collections.abc import Callable

import pytest

from mcp2026.device_plugin.adapters.nvml import Deadlines
from mcp2026.device_plugin.adapters.nvml.deadlines import MOST_ABANDONED
from mcp2026.device_plugin.driver import EventKind, GpuEvent
from mcp2026.topology.machine import PcieAncestor
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml.driver_process import RemoteDriver, RemoteError

pytest_plugins = ["tests.fakes.nvml.fixtures"]

PAIRS, SIXTEEN = "4xa100-pcie-nvlink-pairs", "dgx-2-16xv100"
IMPATIENT = Deadlines(open_s=0.4, answer_s=0.4, change_s=0.4, close_s=0.4)
PATIENT = Deadlines(open_s=20.0, answer_s=20.0, change_s=20.0, close_s=5.0)

Start = Callable[[FakeNvml | None], RemoteDriver]
Fake = Callable[[str], FakeNvml]


def opened(nvml: FakeNvml, driver_of: Start) -> tuple[RemoteDriver, list[str]]:
    driver = driver_of(nvml).open(IMPATIENT)
    return driver, [gpu.uuid for gpu in driver.read().machine.gpus]


def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


def test_a_gpu_that_hangs_is_named_and_hides_no_other(fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    nvml.fail("nvmlDeviceGetName", 1, "HANG")
    driver = driver_of(nvml).open(IMPATIENT)
    reading = driver.read()
    assert [gpu.index for gpu in reading.machine.gpus] == [0, 2, 3]
    assert reading.unreadable[1].startswith("nvmlDeviceGetName has not returned after ")


def test_a_call_that_hangs_fails_and_the_next_ones_about_this_gpu_at_once(
    fake: Fake, driver_of: Start
) -> None:
    nvml = fake(PAIRS)
    driver, uuids = opened(nvml, driver_of)
    nvml.fail("nvmlDeviceGetTemperature", 0, "HANG")

    assert "nvmlDeviceGetTemperature has not returned after " in driver.vitals(uuids[0]).failure
    calls = len(nvml.calls())
    for _ in range(20):
        assert "nvmlDeviceGetTemperature has not returned" in driver.vitals(uuids[0]).failure
    with pytest.raises(RemoteError, match=f"GpuCallError: {uuids[0]}: nvmlDeviceGetTemperature: has not"):
        driver.processes(uuids[0])
    assert not driver.answers(0)
    assert len(nvml.calls()) == calls, "the GPU was not left alone"

    assert driver.vitals(uuids[1]).failure == ""
    assert list(driver.read().unreadable) == [0]


def test_a_call_that_returns_after_all_ends_the_failure_and_its_thread(fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    driver, uuids = opened(nvml, driver_of)
    before = driver.threads()
    nvml.fail("*", 0, "HANG")
    assert driver.vitals(uuids[0]).failure
    assert driver.vitals(uuids[1]).failure == ""
    assert driver.threads() == before + 1

    nvml.heal()

    until(lambda: driver.vitals(uuids[0]).failure == "")
    until(lambda: driver.threads() == before)
    assert driver.read().unreadable == {}


def test_a_slow_gpu_is_waited_for(fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    nvml.fail("nvmlDeviceGetName", 1, "DELAY:800")
    assert driver_of(nvml).open(PATIENT).read().unreadable == {}


def test_so_many_threads_and_no_more(fake: Fake, driver_of: Start) -> None:
    nvml = fake(SIXTEEN)
    driver, uuids = opened(nvml, driver_of)
    before = driver.threads()
    nvml.fail("nvmlDeviceGetHandleByUUID", "*", "HANG")
    for uuid in uuids[:MOST_ABANDONED]:
        assert driver.vitals(uuid).failure
    for uuid in uuids[MOST_ABANDONED:]:
        with pytest.raises(RemoteError, match=r"DriverNotRunningError.*8 calls into the driver have not"):
            driver.vitals(uuid)
    assert driver.threads() <= before + MOST_ABANDONED

    driver.close()
    with pytest.raises(RemoteError, match=r"DriverNotRunningError.*8 calls into the driver have not"):
        driver.open(IMPATIENT)

    nvml.heal()
    until(lambda: driver.threads() <= before)
    driver.open(IMPATIENT)
    assert driver.read().unreadable == {}


def test_gpus_that_hang_cost_one_deadline_and_hide_no_other(fake: Fake, driver_of: Start) -> None:
    nvml = fake(SIXTEEN)
    slow = Deadlines(open_s=20.0, answer_s=3.0, change_s=3.0, close_s=0.4)
    driver = driver_of(nvml).open(slow)
    uuids = [gpu.uuid for gpu in driver.read().machine.gpus]
    for index in (1, 4, 5, 6):
        nvml.fail("nvmlDeviceGetTemperature", index, "HANG")
    nvml.fail("*", 9, "NVML_ERROR_GPU_IS_LOST")
    began = time.monotonic()
    vitals = driver.vitals_of(uuids)
    assert time.monotonic() - began < 2 * slow.answer_s
    failed = {uuids.index(uuid): vitals[uuid].failure for uuid in uuids if vitals[uuid].failure}
    assert failed.keys() == {1, 4, 5, 6, 9}
    assert failed[9] == "GPU is lost"


def test_gpus_that_hang_when_they_are_read_cost_one_deadline(fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    for index in (0, 1, 3):
        nvml.fail("nvmlDeviceGetName", index, "HANG")
    slow = Deadlines(open_s=20.0, answer_s=3.0, change_s=3.0, close_s=0.4)
    driver = driver_of(nvml).open(slow)
    began = time.monotonic()
    reading = driver.read()
    assert time.monotonic() - began < 2 * slow.answer_s
    assert [gpu.index for gpu in reading.machine.gpus] == [2]
    assert reading.unreadable.keys() == {0, 1, 3}


def test_ancestors_that_hang_cost_one_deadline(fake: Fake, driver_of: Start) -> None:
    nvml = fake(SIXTEEN)
    nvml.fail("nvmlDeviceGetTopologyCommonAncestor", "*", "HANG")
    reading = driver_of(nvml).open(IMPATIENT).read()
    assert len(reading.machine.gpus) == 16
    assert {a for row in reading.machine.pcie_ancestors for a in row} == {None, PcieAncestor.SYSTEM}
    assert nvml.calls().count("nvmlDeviceGetTopologyCommonAncestor") == 1


@pytest.mark.parametrize("function", ["nvmlDeviceGetCount_v2", "nvmlSystemGetDriverVersion"])
def test_a_driver_that_hangs_as_a_whole_says_so(function: str, fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    driver, _ = opened(nvml, driver_of)
    nvml.fail(function, "*", "HANG")
    for _ in range(3):
        with pytest.raises(RemoteError, match=r"DriverNotRunningError.*has not returned after"):
            driver.read()


def test_a_start_that_hangs_says_so(fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    nvml.fail("nvmlInitWithFlags", "*", "HANG")
    with pytest.raises(RemoteError, match=r"DriverNotRunningError.*nvmlInit has not returned after "):
        driver_of(nvml).open(IMPATIENT)


def test_a_start_that_hangs_and_succeeds_after_all_is_undone(fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    nvml.fail("nvmlInitWithFlags", "*", "HANG")
    driver = driver_of(nvml)
    with pytest.raises(RemoteError, match="DriverNotRunningError"):
        driver.open(IMPATIENT)
    nvml.heal()
    until(lambda: nvml.calls()[-1] == "nvmlShutdown")
    assert driver.open(IMPATIENT).read().unreadable == {}


def test_starts_that_fail_leave_no_threads(fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    nvml.fail("nvmlInitWithFlags", "*", "NVML_ERROR_DRIVER_NOT_LOADED")
    driver = driver_of(nvml)
    for start in (driver.open, driver.listen) * 10:
        with pytest.raises(RemoteError, match="DriverNotRunningError"):
            start()
    until(lambda: driver.threads() == 1)


def test_closing_waits_for_no_call_that_hangs_and_the_last_one_shuts_down(
    fake: Fake, driver_of: Start
) -> None:
    nvml = fake(PAIRS)
    driver, uuids = opened(nvml, driver_of)
    nvml.fail("nvmlDeviceGetHandleByUUID", "*", "HANG")
    assert driver.vitals(uuids[0]).failure
    assert driver.vitals(uuids[1]).failure

    driver.close()
    assert "nvmlShutdown" not in nvml.calls(), "NVML was shut down under a call"

    nvml.heal()
    until(lambda: nvml.calls()[-1] == "nvmlShutdown")
    assert nvml.calls().count("nvmlShutdown") == 1


def test_a_shutdown_that_hangs_does_not_hold_up_the_end(fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    driver, _ = opened(nvml, driver_of)
    nvml.fail("nvmlShutdown", "*", "HANG")
    driver.close()


def test_a_wait_for_events_that_hangs_is_deaf(fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    driver = driver_of(nvml)
    driver.listen(IMPATIENT)
    nvml.fail("nvmlEventSetWait_v2", "*", "HANG")
    with pytest.raises(RemoteError, match=r"DriverNotRunningError.*no events: .*nvmlEventSetWait has not"):
        driver.wait(0.05)
    driver.stop_listening()

    nvml.heal()
    until(lambda: "nvmlEventSetFree" in nvml.calls())
    uuids = sorted(driver.listen(IMPATIENT))
    nvml.emit_xid(1, 79)
    assert driver.wait(20.0) == (GpuEvent(uuids[1], EventKind.XID, 79),)
