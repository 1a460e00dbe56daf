"""What the driver tells of its own accord, through the unchanged pynvml of our fake of the driver."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp2026.device_plugin.driver import EventKind, GpuEvent
from tests.fakes.nvml import (
    DOUBLE_BIT_ECC,
    GPU_UNAVAILABLE,
    RECOVERY_ACTION,
    SINGLE_BIT_ECC,
    FakeNvml,
    link_library,
)
from tests.fakes.nvml.driver_process import RemoteDriver, RemoteError

pytest_plugins = ["tests.fakes.nvml.fixtures"]

TOPOLOGIES = Path(__file__).parents[1] / "topologies"
PAIRS, NEW_DRIVER = "4xa100-pcie-nvlink-pairs", "4xl40s-pcie-2socket"
UUIDS = [f"GPU-a1004006-0000-4000-8000-00000000000{index}" for index in range(4)]
LONG_S = 30.0

Start = Callable[[FakeNvml | None], RemoteDriver]
Fake = Callable[[str], FakeNvml]


def test_an_event_wakes_who_waits_for_it(fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    driver = driver_of(nvml)
    assert driver.listen() == frozenset(UUIDS)
    began = time.monotonic()
    driver.begin_wait(LONG_S)
    nvml.emit_xid(2, 79)
    assert driver.end_wait() == (GpuEvent(UUIDS[2], EventKind.XID, 79),)
    assert time.monotonic() - began < LONG_S / 2, "the wait ended by its timeout"


def test_without_events_a_wait_ends_by_its_timeout(fake: Fake, driver_of: Start) -> None:
    driver = driver_of(fake(PAIRS))
    driver.listen()
    assert driver.wait(0.05) == ()


def test_what_happened_before_is_not_told_and_what_happens_between_waits_is(
    fake: Fake, driver_of: Start
) -> None:
    nvml = fake(PAIRS)
    nvml.emit_xid(0, 31)
    driver = driver_of(nvml)
    driver.listen()
    assert driver.wait(0) == ()
    nvml.emit_xid(1, 48)
    nvml.emit_event(1, DOUBLE_BIT_ECC)
    nvml.emit_event(3, SINGLE_BIT_ECC)
    assert driver.wait(LONG_S) == (
        GpuEvent(UUIDS[1], EventKind.XID, 48),
        GpuEvent(UUIDS[1], EventKind.DOUBLE_BIT_ECC),
        GpuEvent(UUIDS[3], EventKind.SINGLE_BIT_ECC),
    )
    assert driver.wait(0) == ()


def test_all_who_listen_are_told(fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    drivers = [driver_of(nvml), driver_of(nvml)]
    for driver in drivers:
        driver.listen()
        driver.begin_wait(LONG_S)
    nvml.emit_xid(0, 95)
    told = (GpuEvent(UUIDS[0], EventKind.XID, 95),)
    assert [driver.end_wait() for driver in drivers] == [told, told]


def test_a_storm_of_events_comes_in_parts(fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    driver = driver_of(nvml)
    driver.listen()
    for number in range(600):
        nvml.emit_event(number % 4, SINGLE_BIT_ECC)
    parts = [len(driver.wait(0)) for _ in range(4)]
    assert parts == [256, 256, 88, 0]


def test_events_of_newer_drivers_are_told(fake: Fake, driver_of: Start) -> None:
    nvml = fake(NEW_DRIVER)
    driver = driver_of(nvml)
    uuids = [gpu.uuid for gpu in driver.open().read().machine.gpus]
    driver.listen()
    nvml.emit_event(1, GPU_UNAVAILABLE)
    nvml.emit_event(1, RECOVERY_ACTION)
    assert driver.wait(LONG_S) == (
        GpuEvent(uuids[1], EventKind.UNAVAILABLE),
        GpuEvent(uuids[1], EventKind.RECOVERY_ACTION),
    )


def test_an_older_driver_is_asked_for_the_events_that_it_has(fake: Fake, driver_of: Start) -> None:
    nvml = fake("dgx-1v-8xv100")
    driver = driver_of(nvml)
    assert len(driver.listen()) == 8
    nvml.emit_event(1, GPU_UNAVAILABLE)
    assert driver.wait(0) == ()


def test_an_event_names_its_mig_device(fake: Fake, driver_of: Start) -> None:
    nvml = fake("hgx-h100-8gpu")
    nvml.enable_mig(0)
    driver = driver_of(nvml).open()
    uuid = driver.read().machine.gpus[0].uuid
    driver.listen()
    (profile,) = (one for one in driver.mig_profiles(uuid) if one.name == "3g.40gb")
    made = [driver.create_mig_instance(uuid, profile, start) for start in (0, 4)]

    for one in made:
        nvml.emit_xid(0, 94, gi=one.gpu_instance, ci=one.compute_instance)
    nvml.emit_xid(0, 79)
    nvml.emit_xid(0, 94, gi=12, ci=0)

    assert driver.wait(LONG_S) == (
        GpuEvent(uuid, EventKind.XID, 94, made[0].uuid),
        GpuEvent(uuid, EventKind.XID, 94, made[1].uuid),
        GpuEvent(uuid, EventKind.XID, 79),
        GpuEvent(uuid, EventKind.XID, 94),
    ), "an instance that is not found counts for the GPU"


def test_the_fault_of_a_gpu_that_is_gone_names_it(fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    driver = driver_of(nvml)
    driver.listen()
    nvml.lose(1)
    nvml.emit_xid(1, 79)
    assert driver.wait(LONG_S) == (GpuEvent(UUIDS[1], EventKind.XID, 79),)


def test_an_event_of_a_gpu_that_nobody_knows_counts_for_all(fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    driver = driver_of(nvml)
    driver.listen()
    nvml.answer_garbage("nvmlEventSetWait_v2", "*", 0xDEAD0)
    nvml.emit_xid(1, 79)
    assert driver.wait(LONG_S) == (GpuEvent(None, EventKind.XID, 79),)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("nvmlDeviceGetHandleByIndex_v2", "NVML_ERROR_GPU_IS_LOST"),
        ("nvmlDeviceGetSupportedEventTypes", "NVML_ERROR_NOT_SUPPORTED"),
        ("nvmlDeviceRegisterEvents", "NVML_ERROR_NOT_SUPPORTED"),
    ],
)
def test_a_gpu_that_tells_nothing_does_not_keep_the_others_silent(
    function: str, error: str, fake: Fake, driver_of: Start
) -> None:
    nvml = fake(PAIRS)
    nvml.fail(function, 2, error)
    driver = driver_of(nvml)
    assert driver.listen() == {UUIDS[0], UUIDS[1], UUIDS[3]}
    nvml.emit_xid(2, 79)
    nvml.emit_xid(3, 79)
    assert driver.wait(LONG_S) == (GpuEvent(UUIDS[3], EventKind.XID, 79),)


def test_who_waits_is_deaf_when_the_driver_goes(fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    driver = driver_of(nvml)
    driver.listen()
    driver.begin_wait(LONG_S)
    nvml.fail("*", "*", "NVML_ERROR_UNINITIALIZED")
    with pytest.raises(RemoteError, match=r"DriverNotRunningError.*no events: .*Uninitialized"):
        driver.end_wait()


def test_a_driver_without_events_says_so(tmp_path: Path, nvml_objects: Path, driver_of: Start) -> None:
    library = link_library(tmp_path, nvml_objects, ["nvmlEventSetCreate"])
    nvml = FakeNvml(tmp_path, TOPOLOGIES / f"{PAIRS}.yaml", library=library)
    with pytest.raises(RemoteError, match=r"DriverNotRunningError.*nvmlEventSetCreate: Function Not Found"):
        driver_of(nvml).listen()


def test_listening_ends_and_begins_anew(fake: Fake, driver_of: Start) -> None:
    nvml = fake(PAIRS)
    driver = driver_of(nvml)
    for round_ in range(3):
        driver.listen()
        nvml.emit_xid(0, round_ + 1)
        assert driver.wait(LONG_S) == (GpuEvent(UUIDS[0], EventKind.XID, round_ + 1),)
        driver.stop_listening()
    calls = nvml.calls()
    assert calls.count("nvmlEventSetFree") == calls.count("nvmlEventSetCreate") == 3
    assert calls.count("nvmlShutdown") == calls.count("nvmlInitWithFlags") == 3
