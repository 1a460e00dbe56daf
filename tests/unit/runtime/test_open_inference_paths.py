"""Paths lead where the protocol says, with names as clients encode them."""

import pytest

from mcp2026.runtime.protocol.open_inference.paths import PATHS, PathTable, Resource, Target, read_path


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/v2", Target(Resource.SERVER)),
        ("/v2/health/live", Target(Resource.LIVE)),
        ("/v2/health/ready", Target(Resource.READY)),
        ("/v2/models/m", Target(Resource.MODEL, "m")),
        ("/v2/models/m/ready", Target(Resource.MODEL_READY, "m")),
        ("/v2/models/m/config", Target(Resource.CONFIG, "m")),
        ("/v2/models/m/stats", Target(Resource.STATISTICS, "m")),
        ("/v2/models/stats", Target(Resource.ALL_STATISTICS)),
        ("/v2/models/m/infer", Target(Resource.INFER, "m")),
        ("/v2/models/m/versions/2", Target(Resource.MODEL, "m", "2")),
        ("/v2/models/m/versions/2/infer", Target(Resource.INFER, "m", "2")),
        ("/v2/models/m/versions/2/config", Target(Resource.CONFIG, "m", "2")),
        ("/v2/models/m/trace/setting", Target(Resource.TRACE, "m")),
        ("/v2/trace/setting", Target(Resource.TRACE)),
        ("/v2/logging", Target(Resource.LOGGING)),
        ("/v2/repository/index", Target(Resource.INDEX)),
        ("/v2/repository/models/m/load", Target(Resource.LOAD, "m")),
        ("/v2/repository/models/m/unload", Target(Resource.UNLOAD, "m")),
        ("/v2/systemsharedmemory/status", Target(Resource.SYSTEM_STATUS)),
        ("/v2/systemsharedmemory/unregister", Target(Resource.SYSTEM_UNREGISTER)),
        ("/v2/systemsharedmemory/region/r/status", Target(Resource.SYSTEM_STATUS, "r")),
        ("/v2/systemsharedmemory/region/r/register", Target(Resource.SYSTEM_REGISTER, "r")),
        ("/v2/systemsharedmemory/region/r/unregister", Target(Resource.SYSTEM_UNREGISTER, "r")),
        ("/v2/cudasharedmemory/unregister", Target(Resource.CUDA_UNREGISTER)),
        ("/v2/cudasharedmemory/region/r/register", Target(Resource.CUDA_REGISTER, "r")),
        ("/v2/models/a%20b%2Fc/infer", Target(Resource.INFER, "a b/c")),
        ("/v2/models/%C3%A4", Target(Resource.MODEL, "ä")),
        ("/v2/models/\xc3\xa4", Target(Resource.MODEL, "ä")),
        ("/v2/", None),
        ("/v1/infer", None),
        ("/v2/models", None),
        ("/v2/models//infer", None),
        ("/v2/models/m/versions//infer", None),
        ("/v2/models/m/versions", None),
        ("/v2/models/m/generate", None),
        ("/v2/systemsharedmemory/register", None),
        ("/v2/gpusharedmemory/status", None),
        ("/v2/models/m/infer/x", None),
    ],
)
def test_a_path_leads_to_its_target(path: str, target: Target | None) -> None:
    assert read_path(path) == target


def test_ever_new_paths_cost_no_memory() -> None:
    table = PathTable(most=10)
    for number in range(100):
        assert table.find(f"/v2/models/{number}") == Target(Resource.MODEL, str(number))
        assert len(table._known) <= 10
    assert table.find("/v2") is table.find("/v2")
    known = len(table._known)
    assert table.find("/v2/models/" + "m" * 10_000) == Target(Resource.MODEL, "m" * 10_000)
    assert len(table._known) == known


def test_every_path_that_is_named_leads_somewhere_and_every_resource_is_named() -> None:
    found = set()
    for path in PATHS:
        for full in (path.replace("[/versions/<version>]", ""), path.replace("[", "").replace("]", "")):
            target = read_path(full)
            assert target is not None, full
            found.add(target.resource)
    assert found == set(Resource)
