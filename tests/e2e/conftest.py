"""One node with one installation for all tests of this folder: both are dear."""

from collections.abc import Iterator

import pytest

from tools.cluster import Cluster
from tools.demo.installation import ROOT, Installation, install

MACHINE = ROOT / "tests" / "topologies" / "4xa100-pcie-nvlink-pairs.yaml"


@pytest.fixture(scope="session")
def installation(node_cluster: Cluster) -> Iterator[Installation]:
    quick = {"health": {"recoverAfterSeconds": 5}}
    installed = install(node_cluster, MACHINE, report=lambda _: None, plugin_configuration=quick)
    yield installed
    installed.uninstall()
