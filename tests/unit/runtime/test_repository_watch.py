"""Whatever is wrong with one folder of a repository, the others are served."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp2026.api.errors import SettingsError
from mcp2026.api.serving import ServedVersion, ServingConfig
from mcp2026.runtime.changes import Change
from mcp2026.runtime.errors import ErrorCode, ModelLoadError, RequestError
from mcp2026.runtime.process.control import NoteRefusal, Problem
from mcp2026.runtime.repository_watch.watching import NextConfig, RepositoryWatch


class Rounds:
    """Serves everything at once, and remembers what is refused."""

    def __init__(self) -> None:
        self.served: dict[str, ServingConfig] = {}
        self.refused: dict[str, str] = {}

    async def serve_next(self, next_config: NextConfig, *, may_differ: bool = False) -> ServingConfig:
        assert may_differ
        config = await next_config(self.served)
        self.served[config.model] = config
        return config

    async def make(self, change: Change) -> Problem | None:
        raise AssertionError(change)

    async def note(self, refusal: NoteRefusal) -> None:
        self.refused[refusal.model] = refusal.reason


def _errors() -> Iterator[Exception]:
    yield ModelLoadError("a", "is broken", "Repair it")
    yield SettingsError("--max-batch-size", "is odd", "4")
    yield RequestError(ErrorCode.NOT_READY, "not now", "model")
    yield FileNotFoundError(2, "No such file or directory", "a")
    yield ValueError("embedded null byte")
    yield RecursionError("too deep")
    yield MemoryError()


@pytest.mark.parametrize("error", list(_errors()), ids=lambda error: type(error).__name__)
async def test_one_folder_keeps_no_other_from_being_served(tmp_path: Path, error: Exception) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "1").mkdir(parents=True)

    def read(name: str) -> ServingConfig:
        if name == "a":
            raise error
        return ServingConfig(name, (ServedVersion("1", "model.onnx", 100),))

    rounds = Rounds()
    watch = RepositoryWatch(tmp_path, rounds, read, poll_seconds=60.0, quiet_seconds=0.0)
    await watch.load_all()
    assert rounds.served.keys() == {"b"}
    assert rounds.refused.keys() == {"a"}
    assert rounds.refused["a"]
