"""MIG through the unchanged pynvml: modes, profiles and instances, by the rules of hardware in our fake."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp2026.device_plugin.driver import GpuProcess
from mcp2026.topology.mig.geometry import MigInstance, MigProfile
from tests.fakes.nvml import FakeNvml, link_library
from tests.fakes.nvml.driver_process import RemoteDriver, RemoteError

pytest_plugins = ["tests.fakes.nvml.fixtures"]

TOPOLOGIES = Path(__file__).parents[1] / "topologies"
H100 = "hgx-h100-8gpu"

Start = Callable[[FakeNvml | None], RemoteDriver]
Fake = Callable[[str], FakeNvml]


class MigGpu:
    """GPU 0 of an H100 machine in MIG mode, as the driver's callers see it."""

    def __init__(self, nvml: FakeNvml, driver: RemoteDriver) -> None:
        self.nvml = nvml
        self.driver = driver
        self.uuid = driver.read().machine.gpus[0].uuid
        self.profiles = {profile.name: profile for profile in driver.mig_profiles(self.uuid)}

    def create(self, profile: str, start: int) -> MigInstance:
        return self.driver.create_mig_instance(self.uuid, self.profiles[profile], start)

    def destroy(self, instance: MigInstance) -> None:
        self.driver.destroy_mig_instance(self.uuid, instance)

    def instances(self) -> tuple[MigInstance, ...]:
        return self.driver.read().mig_instances[self.uuid]


@pytest.fixture
def gpu(fake: Fake, driver_of: Start) -> MigGpu:
    nvml = fake(H100)
    nvml.enable_mig(0)
    return MigGpu(nvml, driver_of(nvml).open())


def board(name: str, product: str, memory_mib: int) -> dict[str, Any]:
    document = yaml.safe_load((TOPOLOGIES / f"{name}.yaml").read_text())
    document["gpus"] = [gpu | {"product": product, "memory_mib": memory_mib} for gpu in document["gpus"]]
    return document


# ---- the mode ----


def test_a_gpu_in_mig_mode_is_part_of_the_machine_with_its_instances(fake: Fake, driver_of: Start) -> None:
    nvml = fake("dgx-a100-8xa100")
    nvml.enable_mig(3)
    driver = driver_of(nvml).open()
    reading = driver.read()
    uuid = reading.machine.gpus[3].uuid
    assert [gpu.index for gpu in reading.machine.gpus] == list(range(8))
    assert all(gpu.mig_capable for gpu in reading.machine.gpus)
    assert reading.unreadable == {}
    assert reading.mig_instances == {uuid: ()}
    assert driver.answers(3)
    assert driver.failure(uuid) is None
    assert driver.vitals(uuid).busy is None, "a GPU in MIG mode tells no utilisation"


def test_a_gpu_without_mig_has_no_profiles_and_no_mode(fake: Fake, driver_of: Start) -> None:
    driver = driver_of(fake("4xl40s-pcie-2socket")).open()
    uuid = driver.read().machine.gpus[0].uuid
    assert driver.mig_profiles(uuid) == ()
    with pytest.raises(RemoteError, match=r"GpuCallError.*Not Supported"):
        driver.set_mig_mode(uuid, True)


def test_the_mode_is_switched_and_switched_back(fake: Fake, driver_of: Start) -> None:
    nvml = fake(H100)
    driver = driver_of(nvml).open()
    uuid = driver.read().machine.gpus[1].uuid

    driver.set_mig_mode(uuid, True)
    assert driver.read().mig_instances == {uuid: ()}
    assert nvml.mig_mode(1) == (1, 1)
    driver.set_mig_mode(uuid, True)
    driver.set_mig_mode(uuid, False)

    assert driver.read().mig_instances == {}
    assert nvml.calls().count("nvmlDeviceSetMigMode") == 2


def test_a_mode_that_waits_for_a_reset_says_so_and_holds_after_it(fake: Fake, driver_of: Start) -> None:
    nvml = fake("dgx-a100-8xa100")
    nvml.need_reset_for_mig(0)
    driver = driver_of(nvml).open()
    uuid = driver.read().machine.gpus[0].uuid
    with pytest.raises(
        RemoteError, match=r"GpuCallError.*nvmlDeviceSetMigMode.*pending until the GPU is reset"
    ):
        driver.set_mig_mode(uuid, True)
    assert driver.read().mig_instances == {}

    nvml.reset(0)

    assert driver.read().mig_instances == {uuid: ()}


def test_a_mode_does_not_change_under_a_process(fake: Fake, driver_of: Start) -> None:
    nvml = fake(H100)
    nvml.set_process(0, 99, 100)
    driver = driver_of(nvml).open()
    uuid = driver.read().machine.gpus[0].uuid
    with pytest.raises(RemoteError, match=r"GpuCallError.*a process uses the GPU"):
        driver.set_mig_mode(uuid, True)
    nvml.end_process(0, 99)
    driver.set_mig_mode(uuid, True)
    assert driver.read().mig_instances == {uuid: ()}


def test_mig_mode_is_not_left_while_there_are_instances(gpu: MigGpu) -> None:
    instance = gpu.create("1g.10gb", 0)
    with pytest.raises(RemoteError, match=r"GpuCallError.*In use by another client"):
        gpu.driver.set_mig_mode(gpu.uuid, False)
    gpu.destroy(instance)
    gpu.driver.set_mig_mode(gpu.uuid, False)


# ---- profiles ----


@pytest.mark.parametrize(
    ("product", "memory_mib", "names", "sizes_mib"),
    [
        ("NVIDIA A100-SXM4-40GB", 40960, "1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", 40192),
        ("NVIDIA A100-SXM4-80GB", 81920, "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", 80384),
        ("NVIDIA H100 80GB", 81559, "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", 80384),
        ("NVIDIA H200", 143771, "1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb", 143771),
    ],
)
def test_profiles_are_those_of_the_board(
    product: str,
    memory_mib: int,
    names: str,
    sizes_mib: int,
    tmp_path: Path,
    linked_nvml: Path,
    driver_of: Start,
) -> None:
    nvml = FakeNvml(tmp_path, board(H100, product, memory_mib), library=linked_nvml)
    driver = driver_of(nvml).open()
    profiles = {one.name: one for one in driver.mig_profiles(driver.read().machine.gpus[0].uuid)}
    assert sorted(profiles) == sorted(names.split())
    by_shape = {(one.compute_slices, one.size, one.most): one.starts for one in profiles.values()}
    assert by_shape == {
        (1, 1, 7): (0, 1, 2, 3, 4, 5, 6),
        (1, 1, 1): (0, 1, 2, 3, 4, 5, 6),
        (1, 2, 4): (0, 2, 4, 6),
        (2, 2, 3): (0, 2, 4),
        (3, 4, 2): (0, 4),
        (4, 4, 1): (0,),
        (7, 8, 1): (0,),
    }
    assert max(one.memory_mib for one in profiles.values()) == sizes_mib


def test_a_driver_that_does_not_name_profiles_gets_the_names_of_nvidias_tools(
    tmp_path: Path, nvml_objects: Path, linked_nvml: Path, driver_of: Start
) -> None:
    without = ["nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlGpuInstanceGetComputeInstanceProfileInfoV"]
    boards = [
        ("dgx-a100-8xa100", "NVIDIA A100-SXM4-40GB", 40960),
        ("dgx-a100-8xa100", "NVIDIA A100-SXM4-80GB", 81920),
        (H100, "NVIDIA H100 80GB HBM3", 81559),
        (H100, "NVIDIA H200", 143771),
    ]
    older_library = link_library(tmp_path / "older", nvml_objects, without)
    for number, (name, product, memory_mib) in enumerate(boards):
        document = board(name, product, memory_mib)
        answers = []
        for library in (linked_nvml, older_library):
            driver = driver_of(FakeNvml(tmp_path / str(number), document, library=library)).open()
            answers.append(driver.mig_profiles(driver.read().machine.gpus[0].uuid))
        assert answers[0] == answers[1], product


# ---- instances ----


def test_an_instance_is_made_where_it_shall_be_and_read_again(gpu: MigGpu) -> None:
    first = gpu.create("3g.40gb", 4)
    second = gpu.create("1g.10gb", 0)
    assert (first.profile, first.start, first.size, first.memory_mib) == ("3g.40gb", 4, 4, 40192)
    assert first.uuid.startswith("MIG-")
    assert first.uuid != second.uuid
    assert gpu.instances() == (second, first)
    assert gpu.nvml.mig_uuids(0) == [first.uuid, second.uuid]


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param([("1g.10gb", start) for start in range(7)], id="seven small ones"),
        pytest.param([("3g.40gb", 0), ("3g.40gb", 4)], id="two of three slices"),
        pytest.param([("4g.40gb", 0), ("3g.40gb", 4)], id="four and three"),
        pytest.param([("7g.80gb", 0)], id="all of it"),
        pytest.param([("2g.20gb", 0), ("2g.20gb", 2), ("2g.20gb", 4), ("1g.20gb", 6)], id="by two"),
        pytest.param([("3g.40gb", 4), ("2g.20gb", 0), ("1g.10gb+me", 2), ("1g.10gb", 3)], id="mixed"),
    ],
)
def test_a_gpu_can_be_laid_out(layout: list[tuple[str, int]], gpu: MigGpu) -> None:
    made = [gpu.create(name, start) for name, start in layout]
    assert gpu.instances() == tuple(sorted(made, key=lambda one: one.start))
    assert len({one.gpu_instance for one in made}) == len(made)
    for one in made:
        gpu.destroy(one)
    assert gpu.instances() == ()


@pytest.mark.parametrize(
    ("present", "wanted", "says"),
    [
        pytest.param([("3g.40gb", 0)], ("4g.40gb", 0), "Insufficient Resources", id="slices that are taken"),
        pytest.param([("3g.40gb", 0)], ("1g.10gb", 3), "Insufficient Resources", id="the last of them"),
        pytest.param(
            [("3g.40gb", 0), ("1g.10gb", 4), ("1g.10gb", 5), ("1g.10gb", 6)],
            ("1g.20gb", 6),
            "Insufficient Resources",
            id="overlap",
        ),
        pytest.param(
            [("4g.40gb", 0), ("2g.20gb", 4), ("1g.10gb", 6)],
            ("7g.80gb", 0),
            "Insufficient Resources",
            id="no compute slices left",
        ),
        pytest.param([("1g.10gb+me", 0)], ("1g.10gb+me", 1), "Insufficient Resources", id="a second +me"),
        pytest.param([], ("3g.40gb", 2), "Invalid Argument", id="a place that the profile does not have"),
    ],
)
def test_what_does_not_fit_is_refused(
    present: list[tuple[str, int]], wanted: tuple[str, int], says: str, gpu: MigGpu
) -> None:
    made = [gpu.create(name, start) for name, start in present]
    with pytest.raises(RemoteError, match=f"GpuCallError.*nvmlDeviceCreateGpuInstanceWithPlacement: {says}"):
        gpu.create(*wanted)
    assert gpu.instances() == tuple(sorted(made, key=lambda one: one.start))


def test_no_instance_outside_of_mig_mode(fake: Fake, driver_of: Start) -> None:
    nvml = fake(H100)
    whole = MigGpu(nvml, driver_of(nvml).open())
    with pytest.raises(RemoteError, match=r"GpuCallError.*Not Supported"):
        whole.create("1g.10gb", 0)


def test_an_instance_that_a_process_uses_stays(gpu: MigGpu) -> None:
    instance = gpu.create("2g.20gb", 0)
    gpu.nvml.set_process(0, 321, 500, gi=instance.gpu_instance, ci=instance.compute_instance)
    assert gpu.driver.processes(gpu.uuid) == (GpuProcess(321, 500, instance.gpu_instance),)
    with pytest.raises(RemoteError, match=r"GpuCallError.*nvmlComputeInstanceDestroy: In use"):
        gpu.destroy(instance)
    assert gpu.instances() == (instance,)
    gpu.nvml.end_process(0, 321)
    gpu.destroy(instance)
    assert gpu.instances() == ()


def test_an_instance_that_took_the_number_of_another_is_not_destroyed_in_its_place(gpu: MigGpu) -> None:
    old = gpu.create("2g.20gb", 0)
    gpu.destroy(old)
    new = gpu.create("2g.20gb", 2)
    assert (new.gpu_instance, new.compute_instance) == (old.gpu_instance, old.compute_instance)
    with pytest.raises(RemoteError, match=f"GpuCallError.*are not those of {old.uuid} any more"):
        gpu.destroy(old)
    assert gpu.instances() == (new,)


def test_half_an_instance_is_told_apart_and_can_be_removed(gpu: MigGpu) -> None:
    whole = gpu.create("1g.10gb", 6)
    gpu.nvml.leave_bare_instance(0, gi=3, profile_id=14, start=2)

    reading = gpu.driver.read()

    bare = MigInstance("", "2g.20gb", 2, 2, 3, -1, 19968)
    assert reading.mig_instances == {gpu.uuid: (whole,)}
    assert reading.bare_mig_instances == {gpu.uuid: (bare,)}
    gpu.destroy(bare)
    assert gpu.driver.read().bare_mig_instances == {}
    assert gpu.instances() == (whole,)


@pytest.mark.parametrize(
    "function",
    [
        "nvmlGpuInstanceGetInfo",
        "nvmlGpuInstanceCreateComputeInstance",
        "nvmlComputeInstanceGetInfo_v2",
        "nvmlDeviceGetMigDeviceHandleByIndex",
        "nvmlDeviceGetUUID",
    ],
)
def test_what_is_half_made_is_removed_again(function: str, gpu: MigGpu) -> None:
    gpu.nvml.fail(function, 0, "NVML_ERROR_UNKNOWN")
    with pytest.raises(RemoteError, match=f"GpuCallError.*{function.removesuffix('_v2')}: Unknown Error"):
        gpu.create("3g.40gb", 0)
    gpu.nvml.heal()
    assert gpu.instances() == ()
    assert gpu.driver.read().bare_mig_instances == {}


def test_instances_outlive_the_plugin_and_are_the_same_for_all_programs(
    gpu: MigGpu, driver_of: Start
) -> None:
    made = gpu.create("3g.40gb", 0)
    other = MigGpu(gpu.nvml, driver_of(gpu.nvml).open())
    assert other.instances() == (made,)
    second = other.create("3g.40gb", 4)
    assert gpu.instances() == (made, second)
    gpu.driver.end()
    other.destroy(made)
    assert other.instances() == (second,)


def test_programs_that_make_instances_at_once_do_not_disturb_each_other(
    gpu: MigGpu, driver_of: Start
) -> None:
    drivers = [gpu, *(MigGpu(gpu.nvml, driver_of(gpu.nvml).open()) for _ in range(3))]
    profile = gpu.profiles["1g.10gb"]
    for place, one in enumerate(drivers):
        one.driver._send("create_mig_instance", one.uuid, profile, place)
    made = [one.driver._receive(MigInstance) for one in drivers]
    assert sorted(gpu.instances(), key=lambda one: one.uuid) == sorted(made, key=lambda one: one.uuid)


def test_a_gpu_whose_instances_cannot_be_read_is_not_offered(gpu: MigGpu) -> None:
    gpu.create("3g.40gb", 0)
    gpu.nvml.fail("nvmlDeviceGetGpuInstances", 0, "NVML_ERROR_NO_PERMISSION")
    reading = gpu.driver.read()
    assert reading.unreadable == {0: "Insufficient Permissions"}
    assert [one.index for one in reading.machine.gpus] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("function", "value"),
    [
        pytest.param("nvmlDeviceGetUUID:mig", b"MIG-\xff\xfe", id="a UUID that is no text"),
        pytest.param("nvmlDeviceGetUUID:mig", b"GPU-1,GPU-2", id="a UUID that names other devices"),
        pytest.param("nvmlDeviceGetUUID:mig", b"MIG-alike", id="one UUID for two devices"),
        pytest.param("nvmlDeviceGetGpuInstances", 1 << 30, id="an absurd number of instances"),
        pytest.param("nvmlGpuInstanceGetInfo", 99, id="an instance beyond the last slice"),
        pytest.param("nvmlDeviceGetGpuInstancePossiblePlacements_v2", 1 << 30, id="absurdly many places"),
    ],
)
def test_nonsense_about_instances_leaves_this_gpu_out(function: str, value: int | bytes, gpu: MigGpu) -> None:
    gpu.create("3g.40gb", 0)
    gpu.create("3g.40gb", 4)
    gpu.nvml.answer_garbage(function, 0, value)
    reading = gpu.driver.read()
    assert list(reading.unreadable) == [0]
    assert len(reading.machine.gpus) == 7


@pytest.mark.parametrize("value", [-1, 0, b"\xff\xfe", b""], ids=["-1", "0", "no text", "no name"])
def test_nonsense_in_profiles_is_no_profile_or_named_anew(value: int | bytes, gpu: MigGpu) -> None:
    gpu.nvml.answer_garbage("nvmlDeviceGetGpuInstanceProfileInfoV", 0, value)
    told: tuple[MigProfile, ...] = gpu.driver.mig_profiles(gpu.uuid)
    assert {one.name for one in told} == (set(gpu.profiles) if isinstance(value, bytes) else set())
