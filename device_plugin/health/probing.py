"""Looks at the GPUs through the driver, and opens it again when it went. Blocking."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from mcp2026.device_plugin.adapters.nvml import NvmlDriver
from mcp2026.device_plugin.devices import Snapshot, after_rereading
from mcp2026.device_plugin.driver import Driver, Reading, Vitals
from mcp2026.device_plugin.errors import DriverNotRunningError, NvmlError

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Look:
    """The snapshot with what was read anew, and the vitals by UUID; or why the driver is gone."""

    snapshot: Snapshot
    vitals: dict[str, Vitals]
    driver_failure: str = ""


class HealthProbe:
    """A driver that is opened by `reopen` after it went, shared by those who ask it."""

    def __init__(
        self, driver: Driver, node_name: str, reopen: Callable[[], Driver] = NvmlDriver.open
    ) -> None:
        self._driver: Driver | None = driver
        self._node_name = node_name
        self._reopen = reopen
        self._reread = False
        self._turns = threading.Lock()

    def look(self, snapshot: Snapshot) -> Look:
        """Return how the GPUs of `snapshot` are now."""
        try:
            return self.ask(lambda driver: self._look(driver, snapshot))
        except NvmlError as error:
            return Look(snapshot, {}, str(error))

    def ask(self, question: Callable[[Driver], _Answer]) -> _Answer:
        """Return what the driver answers to `question`, while nobody else asks it.

        Raises:
            NvmlError: it does not answer.

        """
        with self._turns:
            try:
                if self._driver is None:
                    self._driver = self._reopen()
                    self._reread = True
                return question(self._driver)
            except DriverNotRunningError:
                self._drop()
                raise

    def close(self) -> None:
        """Let go of the driver."""
        self._drop()  # without a turn: who asks may hang

    def _look(self, driver: Driver, snapshot: Snapshot) -> Look:
        if self._reread or driver.answering(tuple(snapshot.unreadable)):
            snapshot = after_rereading(snapshot, with_reading(snapshot, driver.read(self._node_name)))
            self._reread = False
        return Look(snapshot, driver.vitals([gpu.uuid for gpu in snapshot.machine.gpus]))

    def _drop(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()


def with_reading(snapshot: Snapshot, reading: Reading) -> Snapshot:
    """Return `snapshot` with what the driver read."""
    return replace(
        snapshot,
        machine=reading.machine,
        unreadable=reading.unreadable,
        minor_numbers=reading.minor_numbers,
        mig_instances=reading.mig_instances,
    )


def read_snapshot(driver: Driver, node_name: str) -> Snapshot:
    """Read all GPUs.

    Raises:
        NvmlError: they cannot be read.

    """
    reading = driver.read(node_name)
    return with_reading(Snapshot(reading.machine), reading)
