"""A server that is killed while it fetches a version: the next one uses what is there, and serves it."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contract.runtime.kill_points import FETCH, Tokens
from tests.contract.runtime.test_batch_https import Site
from tests.contract.runtime.test_fetched_versions import Configured, added, sha256, trust, version

Model = Callable[[str], Path]


@pytest.fixture
def site(tmp_path: Path, model: Model) -> Iterator[Site]:
    site = Site(tmp_path)
    site.files["/add-hundred"] = model("add-hundred").read_bytes()
    yield site
    site.server.shutdown()
    site.server.server_close()


@pytest.mark.parametrize("step", FETCH)
def test_a_killed_fetch_is_made_good_by_the_next_server(
    step: str, site: Site, model: Model, tmp_path: Path
) -> None:
    tokens = Tokens(tmp_path / "kill points")
    with ExitStack() as stack:
        configured = Configured(tmp_path, stack)
        configured.write(1, ("v1", str(model("add")), sha256(model("add").read_bytes())))
        server = configured.serve(environment=trust(site) | tokens.environment())
        assert added(server) == 1
        tokens.arm(step)
        wanted = version(site, "v2", "add-hundred")
        configured.write(2, wanted)
        assert server.wait() == -signal.SIGKILL
        restarted = configured.serve(environment=trust(site) | tokens.environment())
        assert added(restarted) == 100
        assert not tokens.left()
    digest = wanted[2]
    assert {path.name for path in configured.cache.iterdir()} == {digest, f"{digest}.lock"}
