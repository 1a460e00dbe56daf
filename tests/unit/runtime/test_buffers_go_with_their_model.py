"""Nothing that holds a session waits for the collector of cycles."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp2026.runtime.execution.tensor_cache import Arena
from tests.unit.runtime.loaded_versions import loaded_version
from tools.models import generate


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def test_an_arena_goes_with_its_last_user(no_collector: None, tmp_path: Path) -> None:
    version = loaded_version(generate("mlp", tmp_path))
    arena = Arena(version.session, version.signature, ((64,),), 4)
    bound = arena.bound(2)
    assert arena.bound(2).inputs[0] is bound.inputs[0]
    gone = weakref.ref(arena)
    del arena, bound
    assert gone() is None
