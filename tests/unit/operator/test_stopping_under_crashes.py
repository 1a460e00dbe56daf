"""A model that is stopped, with an operator that may die between any two writes, and pods that may be lost.

Writes of the status are refused if the resource has changed since it was read, as the API server does it.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mcp2026.api.lifecycle import TABLE, Phase
from mcp2026.operator.actions import Action, UpdateStatus
from tests.fakes.played_cluster import model
from tests.fakes.stopping_cluster import StoppingCluster

EDGES = {(str(step.start), step.event.__name__, str(step.end)) for step in TABLE}
REPLICAS = 3


class Stopping(RuleBasedStateMachine):
    """Two operators for one model, as around a restart: each may act on what it read long ago."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = StoppingCluster(model(replicas=REPLICAS, logArchive={"folder": "pvc://logs/a"}))
        self.cluster.serve()
        self.cluster.run()
        self.decided: dict[int, tuple[int, list[Action]]] = {}
        self.version = 0
        self.made = 0
        self.reported: dict[str, int] = {}
        """By pod, the worst code that the operator can have seen."""
        self.phases: list[str] = []

    @initialize(far=st.booleans(), ended=st.integers(0, REPLICAS))
    def is_stopped(self, far: bool, ended: int) -> None:
        """Begin where the user has said so, or where servers have been told and some have ended."""
        self.cluster.edit(stopped=True)
        if far:
            self.decides_and_writes_all()
            self.cluster.see_deployment()
            self.decides_and_writes_all()
            for _ in range(ended):
                self.a_server_ends(0, 0)

    def _perform(self, action: Action, read_at: int) -> None:
        if isinstance(action, UpdateStatus):
            if read_at != self.version:
                return
            self.version += 1
        self.cluster.perform(action)

    @rule(operator=st.integers(0, 1))
    def decides(self, operator: int) -> None:
        self.decided[operator] = (self.version, self.cluster.decide())

    @rule(operator=st.integers(0, 1), writes=st.integers(0, 8))
    def writes_some_of_it_and_dies(self, operator: int, writes: int) -> None:
        read_at, actions = self.decided.pop(operator, (self.version, []))
        for action in actions[:writes]:
            self._perform(action, read_at)

    @rule()
    def decides_and_writes_all(self) -> None:
        read_at = self.version
        for action in self.cluster.decide():
            self._perform(action, read_at)

    @rule()
    def the_deployment_is_seen_and_its_pods_are_as_many_as_it_says(self) -> None:
        cluster = self.cluster
        cluster.see_deployment()
        wanted = cluster.deployment["spec"]["replicas"]
        for pod in list(cluster.pods)[wanted:]:
            cluster.lose(pod)
        while len(cluster.pods) < wanted:
            self.made += 1
            cluster.replace(f"new-{self.made}", like=next(iter(cluster.pods)))

    @precondition(lambda self: self.cluster.servers_are_told)
    @rule(position=st.integers(0, REPLICAS - 1), code=st.sampled_from([0, 0, 0, 1, 4]))
    def a_server_ends(self, position: int, code: int) -> None:
        running = [name for name in self.cluster.pods if name not in self.reported]
        if running:
            name = running[position % len(running)]
            self.reported[name] = code
            reason = {0: "Stopped", 1: "DrainIncomplete", 4: "ArchiveFailed"}[code]
            self.cluster.end(name, code, reason=reason, archive_sha256=None if code == 4 else "ab" * 32)

    @precondition(lambda self: len(self.cluster.pods) > 1)
    @rule(position=st.integers(0, REPLICAS - 1))
    def a_pod_is_lost(self, position: int) -> None:
        name = list(self.cluster.pods)[position % len(self.cluster.pods)]
        self.cluster.lose(name)

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.cluster.resource["status"]
        return status

    @invariant()
    def the_phase_is_the_end_of_an_unbroken_way_from_pending_without_a_step_twice(self) -> None:
        at, taken = str(Phase.PENDING), set()
        for step in self.status["transitions"]:
            edge = (step["from"], step["event"], step["to"])
            assert step["from"] == at
            assert edge in EDGES
            assert edge not in taken
            taken.add(edge)
            at = step["to"]
        assert self.status["phase"] == at

    @invariant()
    def servers_are_told_only_while_their_pods_are_safe(self) -> None:
        if self.cluster.servers_are_told:
            assert self.cluster.deployment["spec"]["paused"] is True

    @invariant()
    def no_pod_goes_before_the_end_is_written(self) -> None:
        if self.cluster.deployment["spec"]["replicas"] != REPLICAS:
            assert self.status["phase"] in ("Failed", "Completed")

    @invariant()
    def what_was_reported_stays_and_is_what_the_pods_said(self) -> None:
        ended = {server["pod"]: server["exitCode"] for server in self.status["endedServers"]}
        assert len(ended) == len(self.status["endedServers"])
        for name, code in ended.items():
            assert self.reported[name] == code

    @invariant()
    def the_phase_is_that_of_the_worst_code(self) -> None:
        codes = [server["exitCode"] for server in self.status["endedServers"]]
        if self.status["phase"] in ("Succeeded", "Completed"):
            assert not any(codes)
            assert len(codes) >= REPLICAS
        if self.status["phase"] == "Failed":
            assert any(codes)

    @invariant()
    def what_is_final_stays(self) -> None:
        self.phases.append(self.status["phase"])
        for before, after in zip(self.phases, self.phases[1:], strict=False):
            assert before == after or before not in ("Failed", "Completed")

    def teardown(self) -> None:
        """Let things settle: it ends, whatever came before."""
        for _ in range(6 * REPLICAS):
            self.the_deployment_is_seen_and_its_pods_are_as_many_as_it_says()
            if self.cluster.servers_are_told and self.status["phase"] == "Running":
                self.a_server_ends(0, 0)
            self.decides_and_writes_all()
        assert self.status["phase"] in ("Failed", "Completed")
        assert self.cluster.deployment["spec"]["replicas"] == 0
        assert self.cluster.decide() == []


TestStopping = Stopping.TestCase
TestStopping.settings = settings(max_examples=120, stateful_step_count=25, deadline=None)
