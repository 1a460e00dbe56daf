"""Whatever a call answers, `read` and its like raise typed errors alone, and one bad GPU hides no other.

Every function of the fake in turn fails with every code of NVML, is missing, or answers nonsense; then
several at once, drawn by chance.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp2026.device_plugin.driver import Reading
from tests.fakes.nvml import FakeNvml, function_names, link_library
from tests.fakes.nvml.driver_process import DriverHost, RemoteDriver, RemoteError

pytest_plugins = ["tests.fakes.nvml.fixtures"]

TOPOLOGIES = Path(__file__).parents[1] / "topologies"
CODES = (*range(1, 31), 999, 4711)
OF_NO_GPU = {
    "nvmlErrorString",
    "nvmlInitWithFlags",
    "nvmlInit_v2",
    "nvmlShutdown",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlDeviceGetCount_v2",
    "nvmlEventSetCreate",
    "nvmlEventSetFree",
    "nvmlEventSetWait_v2",
}
TYPED = {"DriverNotRunningError", "DriverTooOldError", "GpuCallError", "NoDriverLibraryError"}
NONSENSE: tuple[int | bytes, ...] = (
    *(0, 1, 7, 255, 1000, 0x7FFFFFFF, 0xFFFFFFFF, -2, 1 << 63, 0x7FF8000000000000),
    *(b"", b"\xff\xfe\xfd", b"a,b", b"GPU-1\nGPU-2", b"0000:zz:00.0", b"x" * 79),
)

FUNCTIONS = function_names()
OF_A_GPU = [name for name in FUNCTIONS if name not in OF_NO_GPU]


class TwoGpus:
    """A machine of two linked GPUs, the second in MIG mode with an instance; what is read without faults."""

    def __init__(self, nvml: FakeNvml, driver: RemoteDriver) -> None:
        self.nvml = nvml
        self.driver = driver.open()
        nvml.enable_mig(1)
        self.uuids = [gpu.uuid for gpu in driver.read().machine.gpus]
        (profile,) = (one for one in driver.mig_profiles(self.uuids[1]) if one.name == "3g.40gb")
        self.instance = driver.create_mig_instance(self.uuids[1], profile, 4)
        nvml.set_process(1, 7, 100, gi=self.instance.gpu_instance, ci=0)
        self.sound = driver.read()
        self.ask_all()
        self.called = set(nvml.calls())

    def codes_for(self, function: str) -> tuple[int, ...]:
        """Return the codes to try: one for a function that is not called, to see that it is not."""
        return CODES if function in self.called else CODES[-1:]

    @contextmanager
    def faults(self) -> Iterator[FakeNvml]:
        try:
            yield self.nvml
        finally:
            self.nvml.heal()

    def read(self) -> Reading | RemoteError:
        """Return what comes of reading; an error is one of those that callers know."""
        return self._typed(self.driver.read)

    def ask_all(self) -> set[str]:
        """Call all else that is called of the second GPU; return the kinds of errors, which callers know."""
        uuid = self.uuids[1]
        asked = (
            lambda: self.driver.vitals(uuid),
            lambda: self.driver.failure(uuid),
            lambda: self.driver.answers(1),
            lambda: self.driver.processes(uuid),
            lambda: self.driver.compute_mode(uuid),
            lambda: self.driver.mig_profiles(uuid),
            lambda: self.driver.set_mig_mode(uuid, True),
        )
        outcomes = [self._typed(ask) for ask in asked]
        return {outcome.kind for outcome in outcomes if isinstance(outcome, RemoteError)}

    def _typed(self, ask: Callable[[], Any]) -> Any:
        outcome = answer_or_error(ask)
        assert not isinstance(outcome, RemoteError) or outcome.kind in TYPED, outcome
        return outcome

    def first_gpu_is_sound(self, reading: Reading) -> bool:
        """Tell whether all about the first GPU is as ever, but for what its neighbour has to do with."""
        (gpu,) = (gpu for gpu in reading.machine.gpus if gpu.index == 0)
        (before,) = (gpu for gpu in self.sound.machine.gpus if gpu.index == 0)
        alone = all(
            getattr(gpu, fact) == getattr(before, fact)
            for fact in ("uuid", "product", "memory_mib", "pci_bus_id", "numa_node", "mig_capable")
        )
        return alone and 0 not in reading.unreadable and self.driver.vitals(gpu.uuid).failure == ""


def answer_or_error(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except RemoteError as error:
        return error


def document() -> dict[str, Any]:
    machine = yaml.safe_load((TOPOLOGIES / "4xa100-pcie-nvlink-pairs.yaml").read_text())
    machine["gpus"] = machine["gpus"][:2]
    machine["pcie_ancestor"] = [["SELF", "NODE"], ["NODE", "SELF"]]
    return machine


@pytest.fixture(scope="module")
def two(
    tmp_path_factory: pytest.TempPathFactory, linked_nvml: Path, driver_host: DriverHost
) -> Iterator[TwoGpus]:
    nvml = FakeNvml(tmp_path_factory.mktemp("two"), document(), library=linked_nvml)
    with driver_host.driver(nvml) as driver:
        yield TwoGpus(nvml, driver)


@pytest.mark.parametrize("function", OF_A_GPU)
def test_an_error_about_one_gpu_is_of_this_gpu_alone(function: str, two: TwoGpus) -> None:
    for code in two.codes_for(function):
        with two.faults() as nvml:
            nvml.fail(function, 1, code)
            reading = two.read()
            assert isinstance(reading, Reading), f"{code}: {reading}"
            assert two.first_gpu_is_sound(reading), code
            assert {gpu.index for gpu in reading.machine.gpus} | reading.unreadable.keys() == {0, 1}, code
            assert two.ask_all() <= {"GpuCallError"}, code
    assert two.read() == two.sound


@pytest.mark.parametrize("function", sorted(OF_NO_GPU))
def test_an_error_about_the_driver_is_typed(function: str, two: TwoGpus) -> None:
    for code in two.codes_for(function):
        with two.faults() as nvml:
            nvml.fail(function, "*", code)
            two.read()
            two.ask_all()
    assert two.read() == two.sound


@pytest.mark.parametrize("code", CODES)
def test_a_driver_that_answers_all_with_one_error_is_told(code: int, two: TwoGpus) -> None:
    with two.faults() as nvml:
        nvml.fail("*", "*", code)
        reading = two.read()
        assert isinstance(reading, RemoteError)
        two.ask_all()
    assert two.read() == two.sound


@pytest.mark.parametrize("function", OF_A_GPU)
def test_nonsense_about_one_gpu_is_of_this_gpu_alone(function: str, two: TwoGpus) -> None:
    for value in NONSENSE if function in two.called else NONSENSE[:1]:
        with two.faults() as nvml:
            nvml.answer_garbage(function, 1, value)
            reading = two.read()
            assert isinstance(reading, Reading), f"{value!r}: {reading}"
            assert two.first_gpu_is_sound(reading), value
            assert two.ask_all() <= {"GpuCallError"}, value
    assert two.read() == two.sound


FAULTS = st.tuples(
    st.sampled_from(["*", *FUNCTIONS]),
    st.sampled_from([1, "*"]),
    st.sampled_from(CODES) | st.sampled_from(NONSENSE),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(faults=st.lists(FAULTS, min_size=1, max_size=4))
def test_several_faults_at_once_are_typed(faults: list[tuple[str, int | str, Any]], two: TwoGpus) -> None:
    with two.faults() as nvml:
        for number, (function, gpu, what) in enumerate(faults):
            if number % 2:
                nvml.answer_garbage(function, gpu, what)
            else:
                nvml.fail(function, gpu, what if what in CODES else 999)
        two.read()
        two.ask_all()
    assert two.read() == two.sound


# ---- functions that an older driver lacks ----


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_driver_without_a_function_is_read_or_too_old(
    function: str, tmp_path: Path, nvml_objects: Path, driver_host: DriverHost
) -> None:
    library = link_library(tmp_path, nvml_objects, [function])
    nvml = FakeNvml(tmp_path, TOPOLOGIES / "4xa100-pcie-nvlink-pairs.yaml", library=library)
    nvml.enable_mig(1)
    nvml.leave_bare_instance(1, gi=3, profile_id=14, start=2)
    with driver_host.driver(nvml) as driver:
        reading = answer_or_error(lambda: driver.open().read())
        if isinstance(reading, RemoteError):
            called = function.partition("_v")[0]
            assert reading.kind == "DriverTooOldError"
            assert f" has no {called}: update the driver" in reading.text
            return
        present = [gpu.index for gpu in reading.machine.gpus]
        assert present == [0, 1, 2, 3] or (present == [0, 2, 3] and 1 in reading.unreadable)
        assert all(len(gpu.nvlinks) in (0, 12) for gpu in reading.machine.gpus)
        failures = {driver.vitals(gpu.uuid).failure for gpu in reading.machine.gpus}
        assert failures == ({"Function Not Found"} if function == "nvmlDeviceGetHandleByUUID" else {""})


# ---- what is wrong with several GPUs together ----


def machine_of(linked_nvml: Path, folder: Path, change: Callable[[list[dict[str, Any]]], None]) -> FakeNvml:
    described = yaml.safe_load((TOPOLOGIES / "4xl40s-pcie-2socket.yaml").read_text())
    change(described["gpus"])
    return FakeNvml(folder, described, library=linked_nvml)


@pytest.mark.parametrize("fact", ["uuid", "pci_bus_id"])
def test_gpus_with_one_name_are_left_out_and_the_others_are_not(
    fact: str, tmp_path: Path, linked_nvml: Path, driver_host: DriverHost
) -> None:
    def alike(gpus: list[dict[str, Any]]) -> None:
        gpus[2][fact] = gpus[0][fact]

    with driver_host.driver(machine_of(linked_nvml, tmp_path, alike)) as driver:
        reading = driver.open().read()
    assert [gpu.index for gpu in reading.machine.gpus] == [1, 3]
    assert reading.unreadable.keys() == {0, 2}
    assert "of another GPU" in reading.unreadable[0]


def test_a_count_that_cannot_be_true_is_cut_and_what_is_there_is_read(
    tmp_path: Path, linked_nvml: Path, driver_host: DriverHost
) -> None:
    nvml = machine_of(linked_nvml, tmp_path, lambda gpus: None)
    nvml.answer_garbage("nvmlDeviceGetCount_v2", "*", 1000)
    with driver_host.driver(nvml) as driver:
        reading = driver.open().read()
    assert [gpu.index for gpu in reading.machine.gpus] == [0, 1, 2, 3]
    assert reading.unreadable == {}


def test_no_gpu_at_all_is_an_empty_machine(
    tmp_path: Path, linked_nvml: Path, driver_host: DriverHost
) -> None:
    nvml = machine_of(linked_nvml, tmp_path, lambda gpus: None)
    nvml.answer_garbage("nvmlDeviceGetCount_v2", "*", 0)
    with driver_host.driver(nvml) as driver:
        assert driver.open().read().machine.gpus == ()


def test_sixty_four_gpus_are_read(tmp_path: Path, linked_nvml: Path, driver_host: DriverHost) -> None:
    described = yaml.safe_load((TOPOLOGIES / "1xt4-edge.yaml").read_text())
    (one,) = described["gpus"]
    described["gpus"] = [
        one | {"index": n, "uuid": f"GPU-{n:04}", "pci_bus_id": f"0000{n:04X}:01:00.0"} for n in range(64)
    ]
    described["pcie_ancestor"] = [["SELF" if a == b else "NODE" for b in range(64)] for a in range(64)]
    with driver_host.driver(FakeNvml(tmp_path, described, library=linked_nvml)) as driver:
        assert len(driver.open().read().machine.gpus) == 64


def test_a_name_that_is_no_text_is_replaced_and_the_gpu_offered(
    tmp_path: Path, linked_nvml: Path, driver_host: DriverHost
) -> None:
    nvml = machine_of(linked_nvml, tmp_path, lambda gpus: None)
    nvml.answer_garbage("nvmlDeviceGetName", 1, b"NVIDIA\xff\x01 L40S\n")
    nvml.answer_garbage("nvmlSystemGetDriverVersion", "*", b"\xc3\x28")
    with driver_host.driver(nvml) as driver:
        machine = driver.open().read().machine
    assert machine.gpus[1].product == "NVIDIA\ufffd\ufffd L40S\ufffd"
    assert machine.driver == "\ufffd("
