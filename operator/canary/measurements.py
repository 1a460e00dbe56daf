"""The counts of the canary steps that are in progress, by model. Only in memory.

What a pod had counted at the first look at it is where counting starts, in each step and for each run of its
container. So an operator that is started anew begins to count anew: it can only judge later than it might
have, never by requests of another step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mcp2026.api.canary import Canary
from mcp2026.operator.canary.comparison import LOOK_SECONDS, Comparison
from mcp2026.operator.canary.counts import Counts, measured, total
from mcp2026.operator.store import ModelKey

Seen = Mapping[str, Counts]
"""What a pod has counted since it started, by version."""


class Step(NamedTuple):
    """One step of one canary. Equal steps are measured together."""

    model_uid: str
    plan: Canary
    number: int
    since: str


class Pod(NamedTuple):
    """One run of a pod's container: each counts from zero."""

    name: str
    uid: str
    restarts: int = 0


@dataclass(slots=True)
class _Measuring:
    step: Step
    began_look: float
    total: dict[str, Counts] = field(default_factory=dict)
    """By version, of all pods since the first look at each."""
    last: dict[str, tuple[int, Seen]] = field(default_factory=dict)
    """Per pod uid: its restarts, and what it had counted at the last look."""
    silent: tuple[str, ...] = ()


class Measurements:
    """Takes in looks at pods, and says what they amount to. Times are of one clock, in s."""

    def __init__(self) -> None:
        self._models: dict[ModelKey, _Measuring] = {}

    def begin_look(self, model: ModelKey, step: Step, now: float) -> bool:
        """Say whether it is time to look, and if so, that it is done now."""
        known = self._models.get(model)
        if known is None or known.step != step:
            self._models[model] = _Measuring(step, now)
            return True
        if now - known.began_look < LOOK_SECONDS:
            return False
        known.began_look = now
        return True

    def take(self, model: ModelKey, step: Step, answers: Mapping[Pod, Seen | None]) -> None:
        """Take in what pods answered, None for those that did not; nothing if the step is over."""
        known = self._models.get(model)
        if known is None or known.step != step:
            return
        for pod, seen in answers.items():
            if seen is not None:
                _add(known, pod, seen)
        known.silent = tuple(sorted(pod.name for pod, seen in answers.items() if seen is None))

    def comparison(self, model: ModelKey, step: Step, now: float) -> Comparison:
        """Return what was counted in `step` so far."""
        known = self._models.get(model)
        if known is None or known.step != step:
            return Comparison()
        others = (counts for version, counts in known.total.items() if version != step.plan.version)
        return Comparison(
            measured(known.total.get(step.plan.version, Counts())),
            measured(total(others)),
            known.silent,
            max(known.began_look + LOOK_SECONDS - now, 0.0),
        )

    def forget(self, model: ModelKey) -> None:
        """Forget a model that has no canary in progress."""
        self._models.pop(model, None)


def _add(known: _Measuring, pod: Pod, seen: Seen) -> None:
    run, before = known.last.get(pod.uid, (pod.restarts, seen))
    known.last[pod.uid] = (pod.restarts, seen)
    if run != pod.restarts:
        return
    for version, counts in seen.items():
        earlier = before.get(version, Counts())
        known.total[version] = known.total.get(version, Counts()) + counts.since(earlier)
