"""Fixtures: fakes of machines, and the NVML adapter in processes that see them.

A test module asks for them by `pytest_plugins = ["tests.fakes.nvml.fixtures"]`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.nvml import FakeNvml, compile_objects, link_library
from tests.fakes.nvml.driver_process import DriverHost, RemoteDriver

TOPOLOGIES = Path(__file__).parents[2] / "topologies"


@pytest.fixture(scope="session")
def nvml_objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake, compiled and not linked."""
    return compile_objects(tmp_path_factory.mktemp("nvml-objects"))


@pytest.fixture(scope="session")
def linked_nvml(tmp_path_factory: pytest.TempPathFactory, nvml_objects: Path) -> Path:
    return link_library(tmp_path_factory.mktemp("nvml"), nvml_objects)


@pytest.fixture(scope="session")
def driver_host() -> Iterator[DriverHost]:
    host = DriverHost()
    yield host
    host.close()


@pytest.fixture
def driver_of(driver_host: DriverHost) -> Iterator[Callable[[FakeNvml | None], RemoteDriver]]:
    """Start a process with a driver that sees a fake, or none; it ends with the test."""
    with ExitStack() as stack:
        yield lambda fake: stack.enter_context(driver_host.driver(fake))


@pytest.fixture
def fake(tmp_path: Path, linked_nvml: Path) -> Callable[[str], FakeNvml]:
    """Make the fake of a machine of `tests/topologies`."""
    return lambda name: FakeNvml(tmp_path / name, TOPOLOGIES / f"{name}.yaml", library=linked_nvml)
