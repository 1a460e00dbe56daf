"""A fake `libnvidia-ml.so.1` for tests: the unchanged pynvml loads it and sees the machine of a YAML file.

    with FakeNvml(directory, Path("tests/topologies/dgx-a100-8xa100.yaml")) as fake:
        subprocess.run([...], env={**os.environ, **fake.environment})
        fake.fail("nvmlDeviceGetUUID", 2, "NVML_ERROR_GPU_IS_LOST")  # while the program runs
        fake.heal()

The library needs libc alone, so that a container loads it from a mounted folder:
`LD_LIBRARY_PATH=<folder>`, `FAKE_NVML_MACHINE=<folder>/machine`, `FAKE_NVML_CONTROL=<folder>/control`.
"""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

SOURCE = Path(__file__).with_name("fake_nvml.c")
LIBRARY_NAME = "libnvidia-ml.so.1"

ANCESTORS = {
    "SELF": 0,
    "INTERNAL": 0,
    "SINGLE": 10,
    "MULTIPLE": 20,
    "HOSTBRIDGE": 30,
    "NODE": 40,
    "SYSTEM": 50,
}
REMOTE_GPU, REMOTE_SWITCH, REMOTE_UNKNOWN = 0x00, 0x02, 0xFF

ARCHITECTURES = {
    "V100": 5,
    "T4": 6,
    "A100": 7,
    "L40S": 8,
    "RTX 4090": 8,
    "GH200": 9,
    "H100": 9,
    "GB200": 10,
    "B200": 10,
}
"""`nvmlDeviceArchitecture_t` by what a product's name contains."""

LINK_VERSIONS = {1: 1, 2: 2, 3: 4, 4: 7, 5: 7}
"""What nvmlDeviceGetNvLinkVersion answers for a generation of NVLink (`nvmlNvlinkVersion_t`). Drivers were
seen to answer 7 (NVLink 5.0) on Hopper, whose NVLink is of generation 4: the fake does the same."""


def build_library(directory: Path, without: Iterable[str] = ()) -> Path:
    """Compile the library into `directory`, as a driver would that lacks the functions named in `without`."""
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / LIBRARY_NAME
    command = ["gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    missing = sorted(without)
    if missing:
        script = directory / "symbols.map"
        script.write_text("{ local: " + " ".join(f"{name};" for name in missing) + " };\n")
        command.append(f"-Wl,--version-script={script}")
    unfinished = library.with_suffix(".unfinished")
    subprocess.run([*command, f"-Wl,-soname,{LIBRARY_NAME}", "-o", str(unfinished), str(SOURCE)], check=True)
    unfinished.replace(library)
    return library


def write_machine(source: Path, out: Path) -> Path:
    """Translate the machine in the YAML file `source` into the lines that the library reads."""
    out.write_text(compile_machine(yaml.safe_load(source.read_text(encoding="utf-8"))), encoding="utf-8")
    return out


def compile_machine(document: dict[str, Any]) -> str:
    """Return the lines that the library reads, for a machine in the format of `tests/topologies`."""
    major, minor = str(document["cuda"]).split(".")
    lines = [f"driver {document['driver']}", f"cuda {int(major) * 1000 + int(minor) * 10}"]
    bus_of = {gpu["index"]: gpu["pci_bus_id"] for gpu in document["gpus"]}
    for gpu in document["gpus"]:
        facts = {
            "uuid": gpu["uuid"],
            "name": gpu["product"],
            "bus": gpu["pci_bus_id"],
            "memory_mib": gpu["memory_mib"],
            "numa_node": _or_unknown(gpu.get("numa_node")),
            "numa_id": _or_unknown(gpu.get("gpu_numa_id")),
            "mig": 1 if gpu.get("mig_enabled") else 0 if gpu.get("mig_capable") else -1,
            "architecture": _architecture(gpu["product"]),
            "cpus": " ".join(f"{word:x}" for word in _cpu_words(gpu["cpu_affinity"])),
        }
        lines += [f"gpu {gpu['index']} {name} {value}" for name, value in facts.items()]
        for link in gpu.get("nvlinks") or ():
            direct = isinstance(link["peer"], int)
            bus = bus_of[link["peer"]] if direct else link.get("remote_bus_id")
            remote = REMOTE_GPU if direct else REMOTE_SWITCH if bus else REMOTE_UNKNOWN
            version = LINK_VERSIONS[link["version"]]
            lines.append(f"link {gpu['index']} {link['link']} {remote} {version} {bus or '-'}")
    for a, row in enumerate(document["pcie_ancestor"]):
        lines += [f"ancestor {a} {b} {ANCESTORS[name]}" for b, name in enumerate(row)]
    return "\n".join(lines) + "\n"


def _or_unknown(number: int | None) -> int:
    return -1 if number is None else number


def _architecture(product: str) -> int:
    return next((number for name, number in ARCHITECTURES.items() if name in product), 0xFFFFFFFF)


def _cpu_words(ranges: str) -> list[int]:
    mask = 0
    for part in str(ranges).split(","):
        first, _, last = part.partition("-")
        for cpu in range(int(first), int(last or first) + 1):
            mask |= 1 << cpu
    return [mask >> shift & (1 << 64) - 1 for shift in range(0, max(mask.bit_length(), 1), 64)]


class FakeNvml:
    """A folder with the library, the machine and the control file; `environment` points a program at them."""

    def __init__(
        self, directory: Path, source: Path, without: Iterable[str] = (), library: Path | None = None
    ):
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.library = library or build_library(directory, without)
        self.machine = write_machine(source, directory / "machine")
        self.control = directory / "control"
        self.calls_file = directory / "calls"
        self._errors: list[str] = []

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make a program see this machine."""
        return {
            "LD_LIBRARY_PATH": str(self.library.parent),
            "FAKE_NVML_MACHINE": str(self.machine),
            "FAKE_NVML_CONTROL": str(self.control),
            "FAKE_NVML_CALLS": str(self.calls_file),
        }

    def fail(self, function: str, gpu: int | str, error: str) -> None:
        """From now on `function` ("*": all) answers `error` (HANG: never) for `gpu` ("*": all and none)."""
        self._errors.append(f"{function} {gpu} {error}")
        self._write_control()

    def heal(self) -> None:
        """From now on no call fails."""
        self._errors.clear()
        self._write_control()

    def calls(self) -> list[str]:
        """Return the names of all calls so far."""
        return self.calls_file.read_text().split() if self.calls_file.exists() else []

    def _write_control(self) -> None:
        unfinished = self.control.with_suffix(".unfinished")
        unfinished.write_text("".join(f"{line}\n" for line in self._errors))
        unfinished.replace(self.control)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heal()
