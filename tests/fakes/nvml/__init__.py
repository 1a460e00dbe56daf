"""A fake `libnvidia-ml.so.1` for tests: the unchanged pynvml loads it and sees the machine of a YAML file.

    with FakeNvml(directory, Path("tests/topologies/dgx-a100-8xa100.yaml")) as fake:
        subprocess.run([...], env={**os.environ, **fake.environment})
        fake.fail("nvmlDeviceGetUUID", 2, "NVML_ERROR_GPU_IS_LOST")  # while the program runs
        fake.emit_xid(2, 79)
        fake.heal()

All that a test changes, a program that runs sees at its next call; events wake a program that waits for them.
The library needs libc alone, so that a container loads it from a mounted folder: `LD_LIBRARY_PATH=<folder>`,
and `environment` with the folder's name there. MIG and compute modes are kept in the folder, which must be
writable for whom changes them.
"""

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.fakes.nvml.building import (
    LIBRARY_NAME,
    build_library,
    compile_objects,
    function_names,
    link_library,
)
from tests.fakes.nvml.control import (
    DOUBLE_BIT_ECC,
    GPU_UNAVAILABLE,
    RECOVERY_ACTION,
    SINGLE_BIT_ECC,
    WHOLE,
    XID,
    locked_state,
    replace_file,
)
from tests.fakes.nvml.machine_lines import compile_machine, write_machine

__all__ = [
    "DOUBLE_BIT_ECC",
    "GPU_UNAVAILABLE",
    "LIBRARY_NAME",
    "RECOVERY_ACTION",
    "SINGLE_BIT_ECC",
    "WHOLE",
    "XID",
    "FakeNvml",
    "build_library",
    "compile_machine",
    "compile_objects",
    "function_names",
    "link_library",
    "write_machine",
]

SW_THERMAL_SLOWDOWN, HW_THERMAL_SLOWDOWN = 0x20, 0x40


class FakeNvml:
    """A folder with the library, the machine and the files that change it.

    `environment` points a program at them. GPUs are named by index, everywhere.
    """

    def __init__(
        self,
        directory: Path,
        source: Path | dict[str, Any],
        without: Iterable[str] = (),
        library: Path | None = None,
    ):
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.library = library or build_library(directory, without)
        self.machine = directory / "machine"
        document = yaml.safe_load(source.read_text(encoding="utf-8")) if isinstance(source, Path) else source
        self.machine.write_text(compile_machine(document), encoding="utf-8")
        self.control = directory / "control"
        self.state = directory / "state"
        self.events = directory / "events"
        self.events.touch()
        self.calls_file = directory / "calls"
        self._faults: list[tuple[str, int | str, str]] = []
        self._garbage: list[str] = []
        self._facts: dict[tuple[int, str], int] = {}
        self._processes: dict[tuple[int, int], str] = {}

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make a program see this machine."""
        return {
            "LD_LIBRARY_PATH": str(self.library.parent),
            "FAKE_NVML_MACHINE": str(self.machine),
            "FAKE_NVML_CONTROL": str(self.control),
            "FAKE_NVML_STATE": str(self.state),
            "FAKE_NVML_EVENTS": str(self.events),
            "FAKE_NVML_CALLS": str(self.calls_file),
        }

    # ---- faults ----

    def fail(self, function: str, gpu: int | str, error: str | int) -> None:
        """From now on `function` ("*": all) answers `error` for `gpu` ("*": all and none).

        `error` is NVML's name or number; HANG: the call returns once it is healed; DELAY:<ms>: it is late.
        """
        self._faults.append((function, gpu, str(error)))
        self._write_control()

    def answer_garbage(self, function: str, gpu: int | str, value: int | bytes) -> None:
        """From now on `function` answers `value` for `gpu`: a number, or the bytes of a text without 0."""
        shown = f"hex:{value.hex()}" if isinstance(value, bytes) else str(value)
        self._garbage.append(f"garbage {function} {gpu} {shown}")
        self._write_control()

    def heal(self) -> None:
        """From now on no call fails, is late or answers garbage; facts and processes stay."""
        self._faults.clear()
        self._garbage.clear()
        self._write_control()

    def lose(self, gpu: int) -> None:
        """The GPU falls off the bus: all calls about it fail. The XID comes by `emit_xid(gpu, 79)`."""
        self.fail("*", gpu, "NVML_ERROR_GPU_IS_LOST")

    def recover(self, gpu: int) -> None:
        """No call about this GPU fails any more."""
        self._faults = [fault for fault in self._faults if fault[1] != gpu]
        self._write_control()

    # ---- facts ----

    def set_fact(self, gpu: int, name: str, value: int) -> None:
        """Change a fact; the names are those of the calls of `fact()` in the C sources."""
        self._facts[gpu, name] = value
        self._write_control()

    def link_down(self, gpu: int, link: int) -> None:
        """Take a link down at this end; the other end is another call."""
        self.set_fact(gpu, f"link.{link}", 0)

    def link_up(self, gpu: int, link: int) -> None:
        """Bring a link up again."""
        self.set_fact(gpu, f"link.{link}", 1)

    def set_temperature(self, gpu: int, celsius: int, *, slowdown: bool = False) -> None:
        """Set the temperature; `slowdown`: the clocks are held down because of it."""
        self._facts[gpu, "clocks_event_reasons"] = HW_THERMAL_SLOWDOWN if slowdown else 0
        self.set_fact(gpu, "temperature", celsius)

    def set_memory_used(self, gpu: int, mib: int) -> None:
        """Set the memory in use, whatever processes there are."""
        self.set_fact(gpu, "used_mib", mib)

    def set_busy(self, gpu: int, percent: int) -> None:
        """Set the utilisation."""
        self.set_fact(gpu, "busy", percent)

    def set_uncorrected_ecc_errors(self, gpu: int, count: int) -> None:
        """Set how many errors of memory were not corrected."""
        self.set_fact(gpu, "uncorrected_ecc_errors", count)

    def set_process(
        self,
        gpu: int,
        pid: int,
        mib: int | None = None,
        *,
        gi: int = WHOLE,
        ci: int = WHOLE,
        mps: bool = False,
    ) -> None:
        """A process uses the GPU, or the MIG device `gi`, `ci`; memory in MiB, None: not told."""
        kind, shown = "mps" if mps else "compute", -1 if mib is None else mib
        self._processes[gpu, pid] = f"process {gpu} {pid} {shown} {gi} {ci} {kind}"
        self._write_control()

    def end_process(self, gpu: int, pid: int) -> None:
        """The process uses the GPU no more."""
        self._processes.pop((gpu, pid), None)
        self._write_control()

    # ---- events ----

    def emit_event(self, gpu: int, kind: int, code: int = 0, *, gi: int = WHOLE, ci: int = WHOLE) -> None:
        """Something happened: who waits for events of this kind gets it at once."""
        with self.events.open("a") as events:
            events.write(f"event {gpu} {kind} {code} {gi} {ci}\n")

    def emit_xid(self, gpu: int, xid: int, *, gi: int = WHOLE, ci: int = WHOLE) -> None:
        """The GPU, or the MIG device `gi`, `ci`, had the fault `xid`."""
        self.emit_event(gpu, XID, xid, gi=gi, ci=ci)

    # ---- MIG ----

    def enable_mig(self, gpu: int) -> None:
        """MIG mode is on, as after `nvidia-smi -mig 1`."""
        self._set_mig(gpu, 1)

    def disable_mig(self, gpu: int) -> None:
        """MIG mode is off, and all instances are gone."""
        self._set_mig(gpu, 0)

    def need_reset_for_mig(self, gpu: int, needed: bool = True) -> None:
        """Changes of the MIG mode stay pending until `reset`, as on Ampere behind a hypervisor."""
        self.set_fact(gpu, "mig_needs_reset", int(needed))

    def reset(self, gpu: int) -> None:
        """Reset the GPU: a MIG mode that is pending holds, instances are gone."""
        with locked_state(self.state) as exchange:
            state = exchange(None).without_instances(gpu)
            mode = state.mode(gpu)
            exchange(state.with_mode(gpu, mode[1], mode[1]) if mode else state)

    def leave_bare_instance(self, gpu: int, gi: int, profile_id: int, start: int) -> None:
        """Make a GPU instance without a compute instance, as a program leaves it that dies half way."""
        with locked_state(self.state) as exchange:
            exchange(exchange(None).with_instance(gpu, gi, profile_id, start))

    def mig_mode(self, gpu: int) -> tuple[int, int] | None:
        """Return the MIG mode and the one that is pending; None: nobody changed anything yet."""
        with locked_state(self.state) as exchange:
            return exchange(None).mode(gpu)

    def mig_uuids(self, gpu: int) -> list[str]:
        """Return the UUIDs of the MIG devices that the GPU has."""
        with locked_state(self.state) as exchange:
            return exchange(None).instances(gpu)

    def _set_mig(self, gpu: int, mode: int) -> None:
        with locked_state(self.state) as exchange:
            state = exchange(None)
            exchange((state if mode else state.without_instances(gpu)).with_mode(gpu, mode, mode))

    # ---- what was called ----

    def calls(self) -> list[str]:
        """Return the names of all calls so far."""
        return self.calls_file.read_text().split() if self.calls_file.exists() else []

    def _write_control(self) -> None:
        lines = [f"fault {function} {gpu} {error}" for function, gpu, error in self._faults]
        lines += self._garbage
        lines += [f"set {gpu} {name} {value}" for (gpu, name), value in self._facts.items()]
        lines += self._processes.values()
        replace_file(self.control, "".join(f"{line}\n" for line in lines))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heal()
