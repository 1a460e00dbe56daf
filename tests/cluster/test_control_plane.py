"""A control plane comes up, stands beside another, and leaves nothing behind, however its owner ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.cluster import Cluster, ClusterError, up
from tools.cluster.control_plane import ControlPlaneOptions
from tools.cluster.errors import ProgramFailedError
from tools.cluster.processes import is_alive, of_run
from tools.cluster.record import records

pytestmark = pytest.mark.control_plane


def quiet(_: str) -> None:
    pass


def test_objects_are_stored_and_read_back(control_plane: Cluster) -> None:
    control_plane.kubectl("create", "configmap", "one", "--from-literal=key=value")
    assert control_plane.get("configmap", "one")["data"] == {"key": "value"}


def test_the_python_client_is_administrator(control_plane: Cluster) -> None:
    from kubernetes.client import CoreV1Api

    names = {item.metadata.name for item in CoreV1Api(control_plane.client()).list_namespace().items}
    assert {"default", "kube-system"} <= names


def test_controllers_act(control_plane: Cluster) -> None:
    control_plane.kubectl("create", "deployment", "web", "--image=none", "--replicas=2")

    def pods() -> bool:
        return len(control_plane.get("pods", "-l", "app=web")["items"]) == 2

    control_plane.wait_for("two pods", pods)
    control_plane.kubectl("delete", "deployment", "web")


def test_a_failing_command_says_what_kubectl_said(control_plane: Cluster) -> None:
    with pytest.raises(ClusterError, match=r'kubectl get pod none failed: .*"none" not found'):
        control_plane.kubectl("get", "pod", "none")


def test_another_one_stands_beside_it_and_goes_without_a_trace(
    control_plane: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    started = time.monotonic()
    with up(f"second-{os.getpid()}", owned=True, report=quiet) as second:
        with capsys.disabled():
            print(f"\n[a second control plane came up in {time.monotonic() - started:.1f} s]")
        assert second.api_url != control_plane.api_url
        second.kubectl("create", "namespace", "only-here")
        with pytest.raises(ClusterError, match="not found"):
            control_plane.kubectl("get", "namespace", "only-here")
        programs = list(second.record.programs)
        assert all(is_alive(program.identity) for program in programs)
    assert not any(is_alive(program.identity) for program in programs)
    assert of_run(second.record.run_id) == []
    assert not second.folder.exists()
    assert control_plane.kubectl("get", "--raw", "/readyz") == "ok"


def test_a_name_is_taken_once(control_plane: Cluster) -> None:
    with pytest.raises(ClusterError, match="is up already"):
        up(control_plane.name, report=quiet)
    assert control_plane.kubectl("get", "--raw", "/readyz") == "ok"


def test_the_log_of_a_program_that_fails_is_shown_and_nothing_stays() -> None:
    options = ControlPlaneOptions(extra_arguments={"kube-apiserver": ["--no-such-flag"]})
    name = f"failing-{os.getpid()}"
    with pytest.raises(ProgramFailedError, match=r"(?s)kube-apiserver ended.*unknown flag: --no-such-flag"):
        up(name, options=options, owned=True, report=quiet)
    assert name not in {record.name for record in records()}


def test_the_scheduler_takes_a_configuration(control_plane: Cluster) -> None:
    wanted = "profiles: [{schedulerName: other}]\npercentageOfNodesToScore: 100\n"
    options = ControlPlaneOptions(scheduler_config=wanted)
    with up(f"scheduler-{os.getpid()}", options=options, owned=True, report=quiet) as cluster:
        log = (cluster.logs_dir / "kube-scheduler.log").read_text()
        assert "error" not in log.lower().split("starting kubernetes scheduler")[0]
        assert "percentageOfNodesToScore: 100" in (cluster.folder / "scheduler.yaml").read_text()


def test_the_next_run_removes_what_a_killed_one_left() -> None:
    name = f"killed-{os.getpid()}"
    script = (
        "import signal; from tools.cluster import up; "
        f"print(up({name!r}, owned=True).record.run_id, flush=True); signal.pause()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert owner.stdout is not None
    run_id = owner.stdout.readline().strip()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert len(of_run(run_id)) == 4

    lines: list[str] = []
    with up(f"next-{os.getpid()}", owned=True, report=lines.append):
        assert f"removing the remains of the run {name} (its owner has ended)" in lines
        assert of_run(run_id) == []
        assert name not in {record.name for record in records()}
