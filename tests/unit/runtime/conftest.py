"""What several tests of the runtime start."""

from collections.abc import AsyncIterator

import pytest

from mcp2026.api.serving import ServingConfig
from tests.unit.runtime.serving import Serve, Serving


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    started: list[Serving] = []

    def start(*configs: ServingConfig, **limits: int) -> Serving:
        started.append(Serving(*configs, **limits))
        return started[-1]

    yield start
    for serving in started:
        serving.service.close()
