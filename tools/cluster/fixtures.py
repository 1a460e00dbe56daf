"""Clusters as pytest fixtures, one for each level, shared by all tests of a session.

A test that asks for a cluster carries the mark of its level (`control_plane`, `node` or `kwok`). Where the
level cannot be had, its tests are skipped with one reason that says how to get it; with CI=true they fail
instead, so that a level is never left out by accident.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from tools.cluster.bring_up import up
from tools.cluster.cache import held
from tools.cluster.cluster import Cluster
from tools.cluster.levels import Level
from tools.cluster.record import state_folder
from tools.cluster.requirements import how_to_get, missing_requirements

#: The marks of tests, and the level that each stands for.
LEVEL_OF_MARK = {"control_plane": Level.CONTROL_PLANE, "node": Level.NODE, "kwok": Level.KWOK}


@cache
def left_out(level: Level) -> str | None:
    """Return why a level cannot be had here and how to get it, in one line; None if it can."""
    missing = missing_requirements(level)
    if not missing:
        return None
    return f"level {level} is left out, for it lacks {'; '.join(missing)}. To get it, {how_to_get(level)}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of a level on one pytest-xdist worker (with --dist loadgroup)."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        for mark in LEVEL_OF_MARK:
            if item.get_closest_marker(mark) is not None:
                item.add_marker(pytest.mark.xdist_group(mark))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose level cannot be had, or fail it where everything has to run."""
    for mark, level in LEVEL_OF_MARK.items():
        if item.get_closest_marker(mark) is not None and (reason := left_out(level)):
            if os.environ.get("CI") == "true":
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once for each level that was left out which it was and how to get it."""
    skipped = {str(report.longrepr) for report in terminalreporter.getreports("skipped")}
    for level in Level:
        if any(f"level {level} is left out" in text for text in skipped):
            terminalreporter.write_line(left_out(level) or f"level {level} was left out", yellow=True)


@contextmanager
def session_cluster(level: Level, **arguments: int) -> Iterator[Cluster]:
    """Bring a cluster up that ends with the block, and with this process at the latest."""
    name = f"test-{level}-{os.getpid()}"
    with up(name, level, owned=True, report=lambda _: None, **arguments) as cluster:  # type: ignore[arg-type]
        yield cluster


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Cluster]:
    """Give a control plane without nodes: objects are stored and checked, controllers run."""
    with session_cluster(Level.CONTROL_PLANE) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kwok_cluster() -> Iterator[Cluster]:
    """Give a control plane with five played nodes; more come by `tools.cluster.kwok.add_nodes`."""
    with session_cluster(Level.KWOK) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def node_cluster() -> Iterator[Cluster]:
    """Give a cluster with one real node. The kubelet's folder is one, so runs wait for each other."""
    with held(state_folder() / "node-session.lock"), session_cluster(Level.NODE) as cluster:
        yield cluster
