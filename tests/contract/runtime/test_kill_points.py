"""The steps at which tests kill exist; else no server starts, and each test says so in its own way."""

import importlib
from functools import reduce

import pytest

from tests.contract.runtime.kill_points import STEPS


@pytest.mark.parametrize("step", STEPS)
def test_a_step_is_a_function_of_the_server(step: str) -> None:
    point = STEPS[step]
    module = importlib.import_module(f"mcp2026.runtime.{point.module}")
    assert callable(reduce(getattr, point.function.split("."), module)), point
