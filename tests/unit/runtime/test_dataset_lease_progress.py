"""The progress of a run on a Lease: what is written, how often, and what the settings ask for it."""

import json
from collections.abc import Mapping

import pytest

from mcp2026.api.errors import SettingsError
from mcp2026.runtime.dataset.lease_progress import WRITE_EVERY_S, LeaseProgress
from mcp2026.runtime.dataset.progress import Snapshot
from mcp2026.runtime.dataset.settings import read_settings

RUN = ["--model-path", "m.onnx", "--input", "rows.npy", "--output", "results.npy"]
POD = {"MCP2026_POD_NAME": "nightly-x", "MCP2026_POD_NAMESPACE": "team-a", "MCP2026_POD_UID": "1"}


class Written:
    """A Lease that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[dict[str, int]] = []

    def tell(self, told: Mapping[str, str | None]) -> None:
        self.told.append(json.loads(told["mcp2026.io/batch-progress"] or ""))


def rows(done: int, total: int = 100) -> Snapshot:
    return Snapshot("running", done, total, 0, 0, 0, 0.0, None)


def test_new_numbers_are_written_at_most_every_five_seconds() -> None:
    lease = Written()
    progress = LeaseProgress(lease)
    progress.report(rows(0, 0), 100.0, last=False)
    progress.report(rows(10), 100.0, last=False)
    progress.report(rows(20), 100.1, last=False)
    progress.report(rows(30), 100.0 + WRITE_EVERY_S, last=False)
    progress.report(rows(30), 100.0 + 3 * WRITE_EVERY_S, last=False)
    assert lease.told == [{"rowsDone": 10, "rowsTotal": 100}, {"rowsDone": 30, "rowsTotal": 100}]


def test_the_last_numbers_are_written_at_once() -> None:
    lease = Written()
    progress = LeaseProgress(lease)
    progress.report(rows(10), 100.0, last=False)
    progress.report(rows(100), 100.1, last=True)
    assert lease.told[-1] == {"rowsDone": 100, "rowsTotal": 100}


def test_the_environment_of_a_pod_names_it() -> None:
    settings = read_settings(RUN, POD)
    assert (settings.pod_name, settings.pod_namespace, settings.pod_uid) == ("nightly-x", "team-a", "1")


@pytest.mark.parametrize("missing", sorted(POD))
def test_a_pod_that_is_named_in_part_is_refused(missing: str) -> None:
    part = {name: value for name, value in POD.items() if name != missing}
    with pytest.raises(SettingsError, match="--pod-namespace and --pod-uid; allowed: all three, or none"):
        read_settings(RUN, part)
