"""The NVML adapter in processes of its own: pynvml keeps the library that it loaded first.

`DriverHost` is a process that has imported the adapter and loaded no library. For each fake it forks a
process that loads the fake's library and does what a `RemoteDriver` asks, so that a test costs milliseconds.
What is asked and answered are JSON lines over a socket.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from mcp2026.device_plugin.adapters.nvml import Deadlines, NvmlDriver, NvmlEvents
from mcp2026.device_plugin.driver import ComputeMode, GpuEvent, GpuProcess, Reading, Vitals
from mcp2026.device_plugin.errors import NvmlError
from mcp2026.topology.mig.geometry import MigInstance, MigProfile
from tests.fakes.nvml import FakeNvml

_Type = TypeVar("_Type")

ROOT = Path(__file__).parents[3]
QUICK = Deadlines(open_s=2.0, answer_s=2.0, change_s=2.0, close_s=1.0)
"""Short for tests of calls that hang, and still long for a busy machine."""


class RemoteError(Exception):
    """The adapter raised `kind`; `text` is its message."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text


# ---- in the test ----


class RemoteDriver:
    """A driver and an event source in a process that sees `fake`."""

    def __init__(self, channel: socket.socket) -> None:
        self._file = channel.makefile("rwb")
        channel.close()

    def open(self, deadlines: Deadlines = QUICK) -> Self:
        """Open the driver."""
        self._ask(None, "open", deadlines)
        return self

    def read(self, name: str = "node") -> Reading:
        return self._ask(Reading, "read", name)

    def answers(self, index: int) -> bool:
        return index in self._ask(frozenset[int], "answering", [index])

    def failure(self, uuid: str) -> str | None:
        return self._ask(str | None, "failure", uuid)

    def vitals(self, uuid: str) -> Vitals:
        return self.vitals_of([uuid])[uuid]

    def vitals_of(self, uuids: list[str]) -> dict[str, Vitals]:
        return self._ask(dict[str, Vitals], "vitals", uuids)

    def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        return self._ask(tuple[GpuProcess, ...], "processes", uuid)

    def compute_mode(self, uuid: str) -> ComputeMode:
        return self._ask(ComputeMode, "compute_mode", uuid)

    def set_compute_mode(self, uuid: str, mode: ComputeMode) -> None:
        self._ask(None, "set_compute_mode", uuid, mode)

    def mig_profiles(self, uuid: str) -> tuple[MigProfile, ...]:
        return self._ask(tuple[MigProfile, ...], "mig_profiles", uuid)

    def set_mig_mode(self, uuid: str, enabled: bool) -> None:
        self._ask(None, "set_mig_mode", uuid, enabled)

    def create_mig_instance(self, uuid: str, profile: MigProfile, start: int) -> MigInstance:
        return self._ask(MigInstance, "create_mig_instance", uuid, profile, start)

    def destroy_mig_instance(self, uuid: str, instance: MigInstance) -> None:
        self._ask(None, "destroy_mig_instance", uuid, instance)

    def close(self) -> None:
        self._ask(None, "close")

    def listen(self, deadlines: Deadlines = QUICK) -> frozenset[str]:
        """Open the event source; return the GPUs that it hears."""
        return self._ask(frozenset[str], "listen", deadlines)

    def wait(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        return self._ask(tuple[GpuEvent, ...], "wait", timeout_s)

    def begin_wait(self, timeout_s: float) -> None:
        """Wait for events; `end_wait` returns them."""
        self._send("wait", timeout_s)

    def end_wait(self) -> tuple[GpuEvent, ...]:
        return self._receive(tuple[GpuEvent, ...])

    def stop_listening(self) -> None:
        self._ask(None, "stop_listening")

    def threads(self) -> int:
        """Return how many threads the process has."""
        return self._ask(int, "threads")

    def end(self) -> None:
        """End the process, whatever hangs in it."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def _ask(self, answer: type[_Type] | Any, *question: Any) -> Any:
        self._send(*question)
        return self._receive(answer)

    def _send(self, *question: Any) -> None:
        self._file.write(msgspec.json.encode(question) + b"\n")
        self._file.flush()

    def _receive(self, answer: type[_Type] | Any) -> Any:
        line = self._file.readline()
        assert line, "the process of the driver has ended"
        error, text, value = msgspec.json.decode(line, type=tuple[str, str, msgspec.Raw])
        if error:
            raise RemoteError(error, text)
        return msgspec.json.decode(value, type=answer)


class DriverHost:
    """The process that forks one for each driver."""

    def __init__(self) -> None:
        self._channel, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        clean = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        command = [sys.executable, "-m", "tests.fakes.nvml.driver_process", str(inner.fileno())]
        self._process = subprocess.Popen(command, env=clean, cwd=ROOT, pass_fds=[inner.fileno()])
        inner.close()

    def driver(self, fake: FakeNvml | None) -> RemoteDriver:
        """Return a driver, not yet opened, in a new process that sees `fake`; None: one without a driver."""
        mine, its = socket.socketpair()
        message = msgspec.json.encode((fake.environment, str(fake.library)) if fake else ({}, ""))
        socket.send_fds(self._channel, [message], [its.fileno()])
        its.close()
        return RemoteDriver(mine)

    def close(self) -> None:
        """End it, and by that no driver."""
        self._channel.close()
        self._process.wait(10)


# ---- in the host ----


def main() -> None:
    """Fork a process for each message."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes of drivers
    channel = socket.socket(fileno=int(sys.argv[1]))
    while True:
        message, handles, _, _ = socket.recv_fds(channel, 65536, 1)
        if not message:
            return  # the test has ended
        handle = handles[0]
        if os.fork() == 0:
            channel.close()
            _be_a_driver(message, socket.socket(fileno=handle))
        os.close(handle)


def _be_a_driver(message: bytes, channel: socket.socket) -> None:
    environment, library = msgspec.json.decode(message, type=tuple[dict[str, str], str])
    os.environ.update(environment)
    if library:
        ctypes.CDLL(library)  # by its soname, this is what pynvml finds
    served = Served()
    with channel.makefile("rwb") as file:
        for line in file:
            file.write(msgspec.json.encode(served.answer(line)) + b"\n")
            file.flush()
    os._exit(0)  # threads that hang in the driver are left behind


class Served:
    """What a driver's process does."""

    def __init__(self) -> None:
        self._driver: NvmlDriver | None = None
        self._events: NvmlEvents | None = None

    def answer(self, line: bytes) -> tuple[str, str, Any]:
        name, *arguments = msgspec.json.decode(line)
        try:
            return "", "", getattr(self, f"do_{name}", self._forward)(name, *arguments)
        except Exception as error:
            kind = type(error).__name__ if isinstance(error, NvmlError) else f"UNTYPED {type(error).__name__}"
            return kind, str(error), None

    def do_open(self, _: str, deadlines: Any) -> None:
        self._driver = NvmlDriver.open(msgspec.convert(deadlines, Deadlines))

    def do_listen(self, _: str, deadlines: Any) -> frozenset[str]:
        self._events = NvmlEvents.open(msgspec.convert(deadlines, Deadlines))
        return self._events.heard

    def do_wait(self, _: str, timeout_s: float) -> tuple[GpuEvent, ...]:
        assert self._events is not None
        return self._events.wait(timeout_s)

    def do_stop_listening(self, _: str) -> None:
        assert self._events is not None
        self._events.close()

    def do_threads(self, _: str) -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    def do_set_compute_mode(self, name: str, uuid: str, mode: str) -> None:
        self._forward(name, uuid, ComputeMode(mode))

    def do_create_mig_instance(self, name: str, uuid: str, profile: Any, start: int) -> MigInstance:
        return self._forward(name, uuid, msgspec.convert(profile, MigProfile), start)

    def do_destroy_mig_instance(self, name: str, uuid: str, instance: Any) -> None:
        self._forward(name, uuid, msgspec.convert(instance, MigInstance))

    def _forward(self, name: str, *arguments: Any) -> Any:
        return getattr(self._driver, name)(*arguments)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
