"""A run that was slow once makes nobody wait in vain or be refused: only a caller's own deadline counts."""

from mcp2026.runtime.batching import Batch
from tests.unit.runtime.simulated_engine import MS, SECOND, SimulatedEngine, config


def test_a_slow_first_run_refuses_nobody() -> None:
    def slow_when_cold(batch: Batch) -> int:
        return 20 * SECOND if batch.parts[0].request.number <= 1 else 10 * MS

    engine = SimulatedEngine(config(max_rows=4), run_ns=slow_when_cold)
    engine.arrive(0)
    for number in range(1, 40):
        engine.arrive(number, deadline=60 * SECOND)
    engine.finish()
    assert engine.outcomes == {number: ["answered"] for number in range(40)}
