"""Clusters as pytest fixtures, one for each level, shared by all tests of a session.

A test that asks for a cluster carries the mark of its level (`control_plane`, `node` or `kwok`). Where the
level cannot be had, its tests are skipped with one reason that says how to get it; with CI=true they fail
instead, so that a level is never left out by accident.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tools.cluster.bring_up import up
from tools.cluster.cache import held
from tools.cluster.cluster import Cluster
from tools.cluster.levels import Level
from tools.cluster.record import state_folder
from tools.cluster.requirements import how_to_get, missing_requirements

LEVEL_OF_MARK = {"control_plane": Level.CONTROL_PLANE, "kwok": Level.KWOK, "node": Level.NODE}
"""The marks of tests, and the level that each stands for, in the order in which they run."""


@cache
def left_out(level: Level) -> str | None:
    """Return why a level cannot be had here and how to get it, in one line; None if it can."""
    missing = missing_requirements(level)
    if not missing:
        return None
    return f"level {level} is left out, for it lacks {'; '.join(missing)}. To get it, {how_to_get(level)}"


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests by what has to be up for them, and keep those of a level on one pytest-xdist worker.

    A cluster stays until the session ends, so what needs none comes first: idle ones take time, too. The
    machine has room for one node: tests that bring up one of their own come before those that share one.
    Workers keep to levels with `--dist loadgroup`.
    """
    items.sort(key=_rank)
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        for mark in LEVEL_OF_MARK:
            if item.get_closest_marker(mark) is not None:
                item.add_marker(pytest.mark.xdist_group(mark))


def _rank(item: pytest.Item) -> tuple[int, bool]:
    marks = [*LEVEL_OF_MARK]
    level = max((1 + marks.index(mark) for mark in marks if item.get_closest_marker(mark)), default=0)
    return level, "node_cluster" in getattr(item, "fixturenames", ())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose level cannot be had, or fail it where everything has to run."""
    for mark, level in LEVEL_OF_MARK.items():
        if item.get_closest_marker(mark) is not None and (reason := left_out(level)):
            if os.environ.get("CI") == "true":
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)


@contextmanager
def session_cluster(level: Level) -> Iterator[Cluster]:
    """Bring a cluster up that ends with the block, or is removed by the next one if this process is killed.

    Logs are kept in the folder MCP2026_CLUSTER_LOGS, if that is set.
    """
    name = f"test-{level}-{os.getpid()}"
    with up(name, level, owned=True, report=lambda _: None) as cluster:
        yield cluster
        if kept := os.environ.get("MCP2026_CLUSTER_LOGS"):
            cluster.save_logs(Path(kept) / name)


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
    """Give a cluster with one real node. The kubelet's folder is one, so sessions wait for each other."""
    with held(node_turn()), session_cluster(Level.NODE) as cluster:
        yield cluster


def node_turn() -> Path:
    """Return the lock that a test holds while it has a node, be it shared or its own."""
    return state_folder() / "node-turn.lock"
