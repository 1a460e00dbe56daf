"""Two real extenders at one real API server: which one answers, who takes over, what is never sold twice."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from mcp2026.api.gpu_assignment import parse_gpu_assignment
from mcp2026.api.names import GPU_ASSIGNMENT_ANNOTATION, GPU_RESOURCE
from tests.cluster.scheduling import (
    LABEL,
    LABELS,
    RIGHTS,
    ROOT,
    bound,
    install_gpu_topologies,
    patch_status,
    pod,
    why_waiting,
)
from tests.fakes.clusters import topology
from tests.loopback import http_get
from tools.cluster import Cluster
from tools.cluster.control_plane import scheduler_configuration
from tools.cluster.go_programs import build
from tools.cluster.ports import claim
from tools.cluster.processes import end, start
from tools.cluster.record import StartedProgram

pytestmark = [pytest.mark.control_plane, pytest.mark.usefixtures("clean")]

EIGHT = "dgx-a100-8xa100"
QUICK = (
    "--leader-elect-lease-duration=3",
    "--leader-elect-renew-deadline=2",
    "--leader-elect-retry-period=0.5",
)
PATIENT = ("--leader-elect-lease-duration=3600", "--leader-elect-retry-period=0.5")
"""Whoever takes over did not wait for the Lease to run out."""
LEASE_RIGHTS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "replicas"},
    "rules": [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["extender"],
            "verbs": ["get", "update"],
        },
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["schedulers"],
            "verbs": ["get"],
        },
    ],
}


@dataclass
class Answer:
    status: int
    closes: bool
    body: dict[str, Any]

    @property
    def error(self) -> str:
        return str(self.body.get("Error", ""))


class Replica:
    """One extender's process, in the Lease under its name."""

    def __init__(self, cluster: Cluster, kubeconfig: Path, name: str) -> None:
        self.cluster = cluster
        self.name = name
        (self.port,) = claim(cluster.record, 1)
        self._kubeconfig = kubeconfig
        self._started: StartedProgram | None = None

    def start(self, *flags: str) -> None:
        command = [sys.executable, "-m", "mcp2026.scheduler_extender", "--log-format", "json"]
        command += ["--port", str(self.port), "--kubeconfig", str(self._kubeconfig)]
        command += ["--leader-elect", "--leader-elect-lease=default/extender"]
        command += [f"--leader-elect-identity={self.name}", *flags]
        self._started = start(self.cluster.record, f"extender-{self.name}", command)

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._started is not None:
            end([self._started.identity])
            self._started = None

    def terminate(self) -> None:
        """Ask it to end, by SIGTERM."""
        assert self._started is not None
        os.kill(self._started.identity.pid, signal.SIGTERM)

    @property
    def readiness(self) -> tuple[int, str]:
        return http_get(self.port, "/readyz")

    @property
    def leads(self) -> bool:
        return "mcp2026_extender_leading 1.0" in http_get(self.port, "/metrics")[1]

    async def ask(self, verb: str, body: dict[str, Any]) -> Answer:
        url = f"http://127.0.0.1:{self.port}/v1/{verb}"
        async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
            closes = response.headers.get("Connection") == "close"
            document = await response.json()
            return Answer(response.status, closes, document if isinstance(document, dict) else {})

    def bind(self, made: dict[str, Any], node: str) -> str:
        """Bind a pod as kube-scheduler would; return the error, or nothing."""
        return asyncio.run(self.ask("bind", binding(made, node))).error


@dataclass
class Pair:
    cluster: Cluster
    both: tuple[Replica, Replica]

    def start(self, *flags: str) -> None:
        for replica in self.both:
            replica.start(*flags)

    def leader(self) -> tuple[Replica, Replica]:
        """Wait until one leads and the other knows it; return them in this order."""

        def found() -> tuple[Replica, Replica] | None:
            leading = [replica for replica in self.both if replica.leads]
            if len(leading) != 1:
                return None
            (other,) = [replica for replica in self.both if replica is not leading[0]]
            return (leading[0], other) if f"{leading[0].name} leads" in other.readiness[1] else None

        pair = self.cluster.wait_for("one to lead and the other to know it", found)
        assert pair is not None
        return pair

    def wait_until_leading(self, replica: Replica) -> None:
        self.cluster.wait_for(f"{replica.name} to lead", lambda: replica.leads)


@pytest.fixture(scope="module")
def kubeconfig(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rights of the README, and no more."""
    install_gpu_topologies(control_plane)
    group = "rbac.authorization.k8s.io"
    who = {"subjects": [{"kind": "ServiceAccount", "name": "replicas", "namespace": "default"}]}
    control_plane.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "replicas"}},
        RIGHTS,
        LEASE_RIGHTS,
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "replicas"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "extender"},
            **who,
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "replicas"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "replicas"},
            **who,
        },
    )
    content = yaml.safe_load(control_plane.kubeconfig.read_text())
    token = control_plane.kubectl("create", "token", "replicas").strip()
    for user in content["users"]:
        user["user"] = {"token": token}
    path = tmp_path_factory.mktemp("replicas") / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def pair(control_plane: Cluster, kubeconfig: Path) -> Iterator[Pair]:
    """Two extenders, not started, and no Lease."""
    delete_leases(control_plane)
    a, b = (Replica(control_plane, kubeconfig, name) for name in ("pod-a", "pod-b"))
    yield Pair(control_plane, (a, b))
    for replica in (a, b):
        replica.kill()
    delete_leases(control_plane)


def delete_leases(cluster: Cluster) -> None:
    cluster.kubectl("delete", "leases", "extender", "schedulers", "--ignore-not-found")


def scheduler_leads(cluster: Cluster, holder: str) -> None:
    """Write the schedulers' Lease, as the one that leads does."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3600}
    cluster.apply(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "schedulers"},
            "spec": spec,
        }
    )


def add_machine(cluster: Cluster, name: str) -> None:
    """A node of 8 GPUs."""
    document = topology(name, EIGHT)
    status = document.pop("status")
    document["metadata"]["labels"] = LABELS
    cluster.apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": LABELS}}, document
    )
    patch_status(cluster, f"gputopology/{name}", status)
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110", GPU_RESOURCE: "8"}
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "made by a test"}
    patch_status(
        cluster, f"node/{name}", {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}
    )


def add_pods(cluster: Cluster, names: list[str], gpus: int) -> list[dict[str, Any]]:
    """Make pods for a scheduler that does not run; return them as stored, in order."""
    made = [pod(name, gpus) for name in names]
    for each in made:
        each["spec"]["schedulerName"] = "by-hand"
    cluster.apply(*made)
    stored = {each["metadata"]["name"]: each for each in pods(cluster)}
    return [stored[name] for name in names]


def pods(cluster: Cluster) -> list[dict[str, Any]]:
    return list(cluster.get("pods", "--selector", LABEL)["items"])


def binding(made: dict[str, Any], node: str) -> dict[str, Any]:
    metadata = made["metadata"]
    return {
        "PodName": metadata["name"],
        "PodNamespace": metadata["namespace"],
        "PodUID": metadata["uid"],
        "Node": node,
    }


def reserved(cluster: Cluster) -> list[str]:
    """The GPUs of all pods that are bound, those of each pod one after the other."""
    found: list[str] = []
    for each in pods(cluster):
        value = each["metadata"].get("annotations", {}).get(GPU_ASSIGNMENT_ANNOTATION)
        assert bool(value) is bool(each["spec"].get("nodeName"))
        found += parse_gpu_assignment(value)["main"][GPU_RESOURCE] if value else []
    return found


def fits(replica: Replica, made: dict[str, Any], node: str) -> Callable[[], bool]:
    def check() -> bool:
        answer = asyncio.run(replica.ask("filter", {"Pod": made, "NodeNames": [node]}))
        return answer.body.get("NodeNames") == [node]

    return check


def test_one_answers_and_the_other_refuses_with_words_that_name_it(
    control_plane: Cluster, pair: Pair
) -> None:
    add_machine(control_plane, "node")
    made, other = add_pods(control_plane, ["first", "other"], 2)
    pair.start()
    leader, standby = pair.leader()
    said = (
        f"the scheduler extender {standby.name} is standing by: {leader.name} leads (Lease default/extender"
    )

    status, text = standby.readiness
    assert (status, text.startswith(said)) == (503, True)
    assert http_get(standby.port, "/healthz")[0] == 200
    questions = {"Pod": made, "NodeNames": ["node"]}
    victims = {"Pod": made, "NodeNameToMetaVictims": {"node": {"Pods": [], "NumPDBViolations": 0}}}
    for verb, body, expected in (
        ("filter", questions, 200),
        ("bind", binding(made, "node"), 200),
        ("prioritize", questions, 503),
        ("preempt", victims, 503),
    ):
        answer = asyncio.run(standby.ask(verb, body))
        assert (answer.status, answer.closes) == (expected, True), verb
        assert answer.error.startswith(said), verb
    outcome = 'mcp2026_extender_decisions_total{outcome="standing_by",verb="bind"} 1.0'
    assert outcome in http_get(standby.port, "/metrics")[1]

    control_plane.wait_for("the leader to see the node", fits(leader, made, "node"))
    assert leader.readiness == (200, "ok\n")
    assert leader.bind(made, "node") == ""
    assert standby.bind(other, "node").startswith(said)
    assert len(set(reserved(control_plane))) == 2


def test_a_killed_leader_is_followed_by_the_other_which_knows_what_it_had_reserved(
    control_plane: Cluster, pair: Pair
) -> None:
    add_machine(control_plane, "node")
    made = add_pods(control_plane, ["a", "b", "c"], 3)
    pair.start(*QUICK)
    leader, standby = pair.leader()
    control_plane.wait_for("the leader to see the node", fits(leader, made[0], "node"))
    assert leader.bind(made[0], "node") == ""
    leader.kill()
    pair.wait_until_leading(standby)
    assert standby.bind(made[1], "node") == ""
    assert "needs 3 GPUs, 2 of 8 free" in standby.bind(made[2], "node")
    assert len(set(reserved(control_plane))) == 6
    leader.start(*QUICK)
    control_plane.wait_for("the one that came back to follow", lambda: standby.name in leader.readiness[1])
    assert standby.leads


def test_a_leader_that_is_told_to_end_lets_the_other_lead_without_a_wait(
    control_plane: Cluster, pair: Pair
) -> None:
    add_machine(control_plane, "node")
    (made,) = add_pods(control_plane, ["a"], 1)
    pair.start(*PATIENT)
    leader, standby = pair.leader()
    leader.terminate()
    pair.wait_until_leading(standby)
    control_plane.wait_for("it to see the node", fits(standby, made, "node"))
    assert standby.bind(made, "node") == ""


def test_beside_schedulers_it_is_the_extender_of_the_scheduler_that_leads(
    control_plane: Cluster, pair: Pair
) -> None:
    scheduler_leads(control_plane, "pod-b_1")
    pair.start(*PATIENT, "--leader-elect-beside-scheduler=default/schedulers")
    a, b = pair.both
    pair.wait_until_leading(b)
    said = "the kube-scheduler that leads is pod-b_1, not the one beside it (Lease default/schedulers)"

    def ready() -> bool:
        status, text = a.readiness
        return status == 200 and said in text

    control_plane.wait_for("a standby that is ready, for nobody is routed to it", ready)
    scheduler_leads(control_plane, "pod-a_7")
    pair.wait_until_leading(a)
    assert not b.leads


def test_a_real_scheduler_shows_why_its_pods_wait_and_goes_on_after_the_change(
    control_plane: Cluster, pair: Pair, tmp_path: Path
) -> None:
    add_machine(control_plane, "node")
    pair.start(*QUICK)
    leader, standby = pair.leader()
    block = re.search(r"```yaml\n(.*?)```", (ROOT / "scheduler_extender/README.md").read_text(), re.DOTALL)
    assert block is not None
    here = block[1].replace("127.0.0.1:8888/", f"127.0.0.1:{standby.port}/")
    config = tmp_path / "scheduler.yaml"
    config.write_text(scheduler_configuration(here, control_plane.kubeconfig))
    command = [str(build("kube-scheduler", lambda _: None)), f"--config={config}", "--secure-port=0"]
    scheduler = start(control_plane.record, "scheduler-of-replicas", command)
    try:
        control_plane.apply(pod("waits", 2))
        words = f"{standby.name} is standing by: {leader.name} leads (Lease default/extender"
        assert words in why_waiting(control_plane, "waits", "is standing by")
        leader.kill()
        assert bound(control_plane, "waits", timeout_s=60) == "node"
        assert len(set(reserved(control_plane))) == 2
    finally:
        end([scheduler.identity])


def test_a_hundred_binds_at_once_over_a_change_of_leaders_sell_no_gpu_twice(
    control_plane: Cluster, pair: Pair
) -> None:
    add_machine(control_plane, "node")
    made = add_pods(control_plane, [f"p{number}" for number in range(100)], 1)
    pair.start(*QUICK)
    leader, standby = pair.leader()
    control_plane.wait_for("the leader to see the node", fits(leader, made[0], "node"))

    async def bind_at_both(each: dict[str, Any]) -> None:
        """Ask one after the other until one has bound the pod, or says that the node is full."""
        while True:
            for replica in (leader, standby):
                with suppress(aiohttp.ClientError):
                    said = (await replica.ask("bind", binding(each, "node"))).error
                    if not said or "needs 1 GPU, 0 of 8 free" in said or "already" in said:
                        return
            await asyncio.sleep(0.05)

    async def race() -> None:
        async with asyncio.timeout(60), asyncio.TaskGroup() as binds:
            for number, each in enumerate(made):
                binds.create_task(bind_at_both(each))
                if number == 3:  # some are under way
                    await asyncio.sleep(0)
                    leader.terminate()

    asyncio.run(race())
    taken = reserved(control_plane)
    assert (len(taken), len(set(taken))) == (8, 8)
    pair.wait_until_leading(standby)
