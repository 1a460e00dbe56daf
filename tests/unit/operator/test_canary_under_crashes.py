"""A canary with an operator that may die between any two writes, and pods that lag, refuse and fail.

Two operators act for one model, as around a restart: each may act on what it read long ago. Writes of the
status are refused if the resource has changed since it was read; those of the ConfigMap are not.
"""

import json
from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mcp2026.operator.actions import Action, ApplyChild, UpdateStatus
from tests.fakes.played_cluster import model
from tests.unit.operator.test_canary_steps import VERSIONS, CanaryCluster

STEPS = [10, 50, 100]
PLAN = {
    "version": "v2",
    "steps": STEPS,
    "stepSeconds": 5,
    "settleSeconds": 60,
    "rollback": {"minimumRequests": 20},
}


class Stepping(RuleBasedStateMachine):
    """What holds of a canary, whoever writes what, when, and dies."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = CanaryCluster(model(versions=VERSIONS, canary=PLAN, replicas=2))
        self.cluster.serve()
        for pod in self.cluster.pods.values():
            pod["status"]["podIP"] = "10.0.0.1"
            pod["status"]["containerStatuses"] = [{"name": "runtime", "state": {"running": {}}}]
        self.decided: dict[int, tuple[int, list[Action]]] = {}
        self.version = 0
        self.way: list[tuple[str, int]] = []
        """Outcomes and steps, as they were written."""
        self.final: dict[str, Any] | None = None

    @initialize(step=st.integers(0, 2))
    def begins_somewhere(self, step: int) -> None:
        for _ in range(60):
            if self.canary["step"] >= step:
                return
            self.serves_requests(failing=False)
            self.follows(position=0)
            self.follows(position=1)
            self.decides_and_writes_all()

    @property
    def canary(self) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.resource["status"]["canary"]
        return found

    def _carry_out(self, actions: list[Action], read_at: int) -> None:
        """Write until the API server refuses something, as the operator does."""
        for action in actions:
            if read_at != self.version and isinstance(action, UpdateStatus | ApplyChild):
                return  # of children: an operator is gone before the one that replaces it begins to read
            self.cluster.perform(action)
            if isinstance(action, UpdateStatus):
                self.version += 1
                read_at = self.version

    def _decide(self) -> list[Action]:
        self.cluster.now += timedelta(seconds=1)
        return self.cluster.decide()

    @rule(operator=st.integers(0, 1))
    def decides(self, operator: int) -> None:
        self.decided[operator] = (self.version, self._decide())

    @rule(operator=st.integers(0, 1), writes=st.integers(0, 6))
    def writes_some_of_it_and_dies(self, operator: int, writes: int) -> None:
        read_at, actions = self.decided.pop(operator, (self.version, []))
        self._carry_out(actions[:writes], read_at)

    @rule()
    def decides_and_writes_all(self) -> None:
        self._carry_out(self._decide(), self.version)

    @rule()
    def is_started_anew_and_has_counted_nothing(self) -> None:
        self.decided.clear()
        self.cluster.measurements.forget(("team-a", "resnet50"))

    @rule(failing=st.booleans())
    def serves_requests(self, failing: bool) -> None:
        self.cluster.serve_requests(300, failing="v2" if failing else "")

    @rule(seconds=st.sampled_from([1, 10, 40]))
    def time_passes(self, seconds: int) -> None:
        self.cluster.now += timedelta(seconds=seconds)

    @rule(position=st.integers(0, 1))
    def follows(self, position: int) -> None:
        self.cluster.report(list(self.cluster.pods)[position])

    @precondition(lambda self: "v2" in self.cluster.weights)
    @rule(position=st.integers(0, 1))
    def refuses(self, position: int) -> None:
        newest = self.cluster.revision
        pod = list(self.cluster.pods)[position]
        self.cluster.report(pod, live=max(newest - 1, 1), failed=newest, problem="v2: no such file")

    @invariant()
    def no_step_is_taken_twice_and_none_is_left_out(self) -> None:
        here = (self.canary["outcome"], self.canary["step"])
        if not self.way or self.way[-1] != here:
            self.way.append(here)
        assert len(set(self.way)) == len(self.way)
        taken = list(dict.fromkeys(step for _, step in self.way))
        assert taken == list(range(taken[0], taken[0] + len(taken)))

    @invariant()
    def each_is_told_at_most_once(self) -> None:
        told = self.cluster.told_of("CanaryPromoted", "CanaryRolledBack")
        assert len(told) <= 1
        steps = self.cluster.told_of("CanaryStep")
        assert len(set(steps)) == len(steps)

    @invariant()
    def what_has_ended_stays_as_it_is(self) -> None:
        if self.final is not None:
            assert self.canary == self.final
        elif self.canary["outcome"] != "Progressing":
            self.final = dict(self.canary)

    @invariant()
    def the_weights_are_those_of_a_step_that_was_reached(self) -> None:
        weight = self.cluster.weights.get("v2", 0)
        assert weight in (0, *STEPS[: self.canary["step"] + 1])

    def teardown(self) -> None:
        """Let the operator settle: a version that was rolled back has no weight, whatever came before."""
        self.decided.clear()
        before: dict[str, Any] = {}
        while before != self.canary:
            before = self.canary
            self.decides_and_writes_all()
        served = json.loads(self.cluster.children["ConfigMap"]["data"]["serving.json"])["versions"]
        weights = {version["versionId"]: version["weight"] for version in served}
        if self.canary["outcome"] == "RolledBack":
            assert weights.get("v2", 0) == 0
            assert ("v2" not in weights) is self.canary["withdrawn"]
        else:
            assert weights["v2"] == STEPS[self.canary["step"]]
        assert sum(weights.values()) == 100


TestStepping = Stepping.TestCase
TestStepping.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
