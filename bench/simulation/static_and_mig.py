"""R5.3 in simulation: static GPUs against MIG, and how far the result follows from what is assumed.

No GPU is measured. Sizes and run times are assumptions: the sizes of the headline's models are such that
memory use comes to 42 and 89 %, their rate and loss on a slice such that P99 comes to 186 and 92 ms.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random

from bench.simulation.figures import quantile
from bench.simulation.memory_shares import shared_by_memory
from bench.simulation.serving_queue import MEASURED_SHARE, ServedModel, latencies_ms
from bench.simulation.slicing import (
    SEVEN,
    Arrangement,
    by_memory,
    fixed_layout,
    planned,
    static_shares,
    whole_gpus,
)

HEADLINE_LOSS = 0.39
"""Fitted. A row takes 2.1 times as long on one of seven slices as on the whole GPU: small models."""
HEADLINE_RATE_PER_S = 58.5
"""Fitted. Three such models load a GPU that serves them in turn to 88 %."""
PUBLIC_LOSS = 0.95
"""With it, seven slices are 1.32 times as fast as one GPU in turn: 1.00 against 0.76 requests/s per GPU.

The only public figure at hand, NVIDIA's of March 2026 as the press copied it, for another model.
"""
LOSSES = (0.0, 0.2, HEADLINE_LOSS, 0.6, PUBLIC_LOSS)
RATES = (0.5, 0.75, 1.0)
"""Of the headline's."""

_HEADLINE_SLO_MS = 100.0
_SMALL = ServedModel("small", 9_626, HEADLINE_RATE_PER_S, 8, 4, HEADLINE_LOSS, 8, _HEADLINE_SLO_MS)
_LARGER_MIB = 15_154

LIGHT = ServedModel("light", 9_830, 25, 8, 4, HEADLINE_LOSS, 8, 90)
BUSY = ServedModel("busy", 19_660, 75, 8, 4, HEADLINE_LOSS, 8, 90)
HEAVY = ServedModel("heavy", 39_320, 25, 10, 10, HEADLINE_LOSS, 8, 150)
FLEET_GPUS = 4
MIXED_GPUS = 4
ALONE = "a GPU for one model"
STATIC = "static thirds, in turn"
OURS = "MIG, ours"
BY_MEMORY = "by memory through MPS, ours"
MIXED = {LIGHT: 8, BUSY: 7, HEAVY: 2}
"""How many of each come, in random order, to the mixed case."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one arrangement comes to.

    `p99_ms` and `worst_p99_ms`: over all requests, and of the model that fares worst; `missed`: requests
    that were late or whose model has no room, of all.
    """

    models: int
    offered: int
    memory_use: float
    p50_ms: float
    p99_ms: float
    worst_p99_ms: float
    missed: float


def headline_models(loss: float = HEADLINE_LOSS, rate: float = 1.0) -> list[ServedModel]:
    """Return seven models: the third is larger. `rate` is in terms of the headline's."""
    names = [f"model-{number}" for number in range(7)]
    sizes = {2: _LARGER_MIB}
    return [
        replace(
            _SMALL,
            name=name,
            memory_mib=sizes.get(number, _SMALL.memory_mib),
            rate_per_s=rate * HEADLINE_RATE_PER_S,
            loss=loss,
        )
        for number, name in enumerate(names)
    ]


def mixed_models(seed: int) -> list[ServedModel]:
    """Return the models of the mixed case in the order in which they come; rates differ by up to 20 %."""
    draw = Random(seed)
    models = [
        replace(kind, name=f"{kind.name}-{number}", rate_per_s=kind.rate_per_s * draw.uniform(0.8, 1.2))
        for kind, count in MIXED.items()
        for number in range(count)
    ]
    draw.shuffle(models)
    return models


def headline(seconds: float, seed: int) -> Mapping[str, Outcome]:
    """Return the headline's cases on one GPU."""
    models = headline_models()
    arrangements = {
        ALONE: whole_gpus(models, 1),
        STATIC: static_shares(models, 1),
        "MIG, seven slices": fixed_layout(models, 1, SEVEN),
        "MIG, smallest slice": by_memory(models, 1),
        OURS: planned(models, 1, predicted_p99_ms),
        BY_MEMORY: shared_by_memory(models, 1),
    }
    return {name: outcome(models, arrangement, seconds, seed) for name, arrangement in arrangements.items()}


def headline_fleet(seconds: float, seed: int) -> Mapping[str, Outcome]:
    """Return what becomes of the headline's models on four GPUs: 32 come, one in eight larger, at random."""
    models = [
        replace(model, name=f"{model.name}-{number}")
        for number in range(FLEET_GPUS)
        for model in (*headline_models(), _SMALL)
    ]
    Random(seed).shuffle(models)
    arrangements = {
        STATIC: static_shares(models, FLEET_GPUS),
        "MIG, seven slices": fixed_layout(models, FLEET_GPUS, SEVEN),
        OURS: planned(models, FLEET_GPUS, predicted_p99_ms),
        BY_MEMORY: shared_by_memory(models, FLEET_GPUS),
    }
    return {name: outcome(models, arrangement, seconds, seed) for name, arrangement in arrangements.items()}


def mixed(seconds: float, seed: int) -> Mapping[str, Outcome]:
    """Return the mixed case: models of three sizes on four GPUs."""
    models = mixed_models(seed)
    arrangements = {
        ALONE: whole_gpus(models, MIXED_GPUS),
        STATIC: static_shares(models, MIXED_GPUS),
        "MIG, balanced layout": fixed_layout(models, MIXED_GPUS),
        "MIG, smallest slice": by_memory(models, MIXED_GPUS),
        OURS: planned(models, MIXED_GPUS, predicted_p99_ms),
        BY_MEMORY: shared_by_memory(models, MIXED_GPUS),
    }
    return {name: outcome(models, arrangement, seconds, seed) for name, arrangement in arrangements.items()}


def sensitivity(seconds: float, seed: int) -> Mapping[tuple[float, float], float | None]:
    """Return P99 of seven slices over P99 of static thirds, by loss on a slice and rate of the headline's.

    None where the slices cannot keep up, so that latency grows for ever.
    """
    found: dict[tuple[float, float], float | None] = {}
    for rate in RATES:
        static = headline_models(rate=rate)
        static_p99_ms = outcome(static, static_shares(static, 1), seconds, seed).p99_ms
        for loss in LOSSES:
            models = headline_models(loss, rate)
            if models[0].load(1) >= 1:
                found[loss, rate] = None
                continue
            sliced = outcome(models, fixed_layout(models, 1, SEVEN), seconds, seed)
            found[loss, rate] = sliced.p99_ms / static_p99_ms
    return found


def outcome(models: Sequence[ServedModel], arrangement: Arrangement, seconds: float, seed: int) -> Outcome:
    """Let the requests of `models` come for `seconds` and return what they see."""
    latencies: dict[str, list[float]] = {}
    for server in arrangement.servers:
        latencies |= latencies_ms(server.models, server.compute_slices, seconds, seed)
    slo_ms = {model.name: model.slo_ms for model in models}
    everything = sorted(latency for its in latencies.values() for latency in its)
    late = sum(latency > slo_ms[name] for name, its in latencies.items() for latency in its)
    unserved = (model for model in models if model.name not in latencies)
    without_room = sum(MEASURED_SHARE * seconds * model.rate_per_s for model in unserved)
    return Outcome(
        models=len(arrangement.hosted),
        offered=len(models),
        memory_use=arrangement.memory_use,
        p50_ms=quantile(everything, 0.50),
        p99_ms=quantile(everything, 0.99),
        worst_p99_ms=max((quantile(sorted(its), 0.99) for its in latencies.values()), default=0.0),
        missed=(late + without_room) / (len(everything) + without_room),
    )


_PREDICTION_S = 60.0
_PREDICTION_SEED = 1_000_003


@lru_cache(maxsize=4_096)
def predicted_p99_ms(model: ServedModel, compute_slices: float) -> float:
    """Predict by playing other traffic of the same rate. Run times are known; a cluster must learn them."""
    if model.load(compute_slices) >= 1:
        return float("inf")
    (found,) = latencies_ms((model,), compute_slices, _PREDICTION_S, _PREDICTION_SEED).values()
    return quantile(sorted(found), 0.99)
