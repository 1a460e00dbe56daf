"""A cluster as those who use it see it: brought up, asked, waited for, taken down."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tools.cluster.errors import ClusterError
from tools.cluster.go_programs import program_path
from tools.cluster.record import Record, load, records, state_folder
from tools.cluster.removal import remove

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

T = TypeVar("T")


class Cluster:
    """A running cluster, found by its record."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.name = record.name
        self.folder = Path(record.folder)
        self.kubeconfig = self.folder / "kubeconfig"
        self.logs_dir = self.folder / "logs"

    @classmethod
    def named(cls, name: str) -> Self:
        """Return a cluster that was brought up earlier, perhaps by another process."""
        path = state_folder() / name / "record.json"
        try:
            return cls(load(path))
        except FileNotFoundError:
            known = ", ".join(record.name for record in records()) or "none"
            raise ClusterError(f"there is no cluster {name!r}; running are: {known}") from None

    @property
    def api_url(self) -> str:
        """Return where the API server answers on this machine."""
        return self.record.api_url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def down(self) -> None:
        """End everything the cluster started and undo what it changed on this machine."""
        remove(self.record)

    def kubectl(self, *arguments: str, input: str | None = None, timeout_s: float = 120.0) -> str:  # noqa: A002
        """Run kubectl and return what it printed; raise ClusterError with what it said if it fails."""
        command = [str(program_path("kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments]
        try:
            answer = subprocess.run(
                command, input=input, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"kubectl {' '.join(arguments)} took over {timeout_s:.0f} s") from None
        if answer.returncode != 0:
            raise ClusterError(f"kubectl {' '.join(arguments)} failed: {answer.stderr.strip()}")
        return answer.stdout

    def apply(self, *objects: Mapping[str, Any] | str) -> str:
        """Apply objects, given as mappings or as YAML text."""
        documents = [given if isinstance(given, str) else json.dumps(given) for given in objects]
        return self.kubectl("apply", "-f", "-", input="\n---\n".join(documents))

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return what `kubectl get` says about one object, or a list of them, as data."""
        answer: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return answer

    def wait(
        self, resource: str, condition: str, *, namespace: str = "default", timeout_s: float = 60.0
    ) -> None:
        """Wait, by a watch, until `kubectl wait --for=condition` holds for a resource."""
        limits = [f"--for={condition}", f"--timeout={timeout_s:.0f}s", f"--namespace={namespace}"]
        self.kubectl("wait", resource, *limits, timeout_s=timeout_s + 10)

    def wait_for(
        self,
        description: str,
        predicate: Callable[[], T],
        timeout_s: float = 60.0,
        poll_every_s: float = 0.1,
    ) -> T:
        """Return the first true value of the predicate; raise ClusterError when time is up.

        For conditions that no watch tells of. A ClusterError in the predicate counts as not yet, and the
        last one is part of the message.
        """
        deadline = time.monotonic() + timeout_s
        problem = ""
        while True:
            try:
                if value := predicate():
                    return value
                problem = ""
            except ClusterError as error:
                problem = f" (last: {error})"
            if time.monotonic() >= deadline:
                raise ClusterError(f"waited {timeout_s:.0f} s in vain for {description}{problem}")
            time.sleep(poll_every_s)

    def client(self) -> "ApiClient":
        """Return a client of the official Python library that talks to this cluster as administrator."""
        from kubernetes import config

        client: ApiClient = config.new_client_from_config(  # type: ignore[no-untyped-call]  # untyped
            config_file=str(self.kubeconfig)
        )
        return client

    def helm(self, *arguments: str, timeout_s: float = 300.0) -> str:
        """Run helm against the cluster and return what it printed."""
        command = [str(program_path("helm")), f"--kubeconfig={self.kubeconfig}", *arguments]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        if answer.returncode != 0:
            raise ClusterError(f"helm {' '.join(arguments)} failed: {answer.stderr.strip()}")
        return answer.stdout

    def save_logs(self, target: Path) -> None:
        """Copy the programs' logs to a folder that outlives the cluster."""
        shutil.copytree(self.logs_dir, target, dirs_exist_ok=True)
