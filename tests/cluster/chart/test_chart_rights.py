"""What each program may do on the API server, and what it may not."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.chart.rendering import (
    CHART,
    by_kind,
)
from tools.cluster.cluster import Cluster
from tools.cluster.errors import ClusterError

pytestmark = pytest.mark.control_plane


def test_operator_and_scheduler_fit_a_restricted_namespace(
    control_plane: Cluster, namespace: str, render: Callable[..., list[dict[str, Any]]]
) -> None:
    control_plane.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    objects = render()
    for account in (item for item in objects if item["kind"] == "ServiceAccount"):
        control_plane.apply(account)

    def admit(workload: dict[str, Any]) -> str:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": workload["metadata"]["name"], "namespace": namespace},
            "spec": workload["spec"]["template"]["spec"],
        }
        return control_plane.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))

    for name in ("mcp2026-operator", "mcp2026-scheduler"):
        assert "created" in admit(by_kind(objects, "Deployment", name))
    with pytest.raises(ClusterError, match="hostPath"):
        admit(by_kind(objects, "DaemonSet"))


def test_the_device_plugin_gets_no_privilege_beyond_root(render: Callable[..., list[dict[str, Any]]]) -> None:
    pod = by_kind(render(), "DaemonSet")["spec"]["template"]["spec"]
    context = pod["containers"][0]["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["allowPrivilegeEscalation"] is False
    assert "privileged" not in context
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


@pytest.mark.parametrize(
    ("values", "capabilities", "host_pid"),
    [
        ({"devicePlugin": {"mig": True}}, {"drop": ["ALL"], "add": ["SYS_ADMIN"]}, False),
        ({"devicePlugin": {"mps": True}}, {"drop": ["ALL"], "add": ["SYS_ADMIN"]}, True),
    ],
)
def test_mig_and_mps_add_what_they_need_and_no_more(
    render: Callable[..., list[dict[str, Any]]],
    values: dict[str, Any],
    capabilities: dict[str, Any],
    host_pid: bool,
) -> None:
    pod = by_kind(render(values), "DaemonSet")["spec"]["template"]["spec"]
    context = pod["containers"][0]["securityContext"]
    assert context["capabilities"] == capabilities
    assert context["allowPrivilegeEscalation"] is False
    assert pod.get("hostPID", False) is host_pid
    assert not {"hostNetwork", "hostIPC"} & pod.keys()


@pytest.mark.parametrize(
    ("account", "allowed", "refused"),
    [
        (
            "mcp2026-operator",
            [
                "list inferencemodels.mcp2026.io", "patch inferencemodels.mcp2026.io/status",
                "create deployments.apps", "patch deployments.apps", "delete services", "watch configmaps",
                "create jobs.batch", "patch jobs.batch",
                "list pods", "patch pods", "create events", "create serviceaccounts",
                "create roles.rbac.authorization.k8s.io", "patch rolebindings.rbac.authorization.k8s.io",
                "watch leases.coordination.k8s.io", "patch leases.coordination.k8s.io",
            ],
            [
                "get secrets", "create pods", "delete pods", "delete inferencemodels.mcp2026.io",
                "create clusterroles.rbac.authorization.k8s.io", "patch nodes", "create pods/exec",
                "list namespaces", "delete serviceaccounts", "create serviceaccounts/token",
                "escalate roles.rbac.authorization.k8s.io", "bind roles.rbac.authorization.k8s.io",
                "delete roles.rbac.authorization.k8s.io", "get leases.coordination.k8s.io",
                "update leases.coordination.k8s.io", "delete jobs.batch",
            ],
        ),
        (
            "mcp2026-scheduler",
            [
                "list nodes", "watch pods", "list gputopologies.mcp2026.io", "create pods/binding",
                "update leases.coordination.k8s.io/mcp2026-scheduler",
                "update leases.coordination.k8s.io/mcp2026-scheduler-extender",
                "get configmaps/extension-apiserver-authentication -n kube-system",
            ],
            [
                "get secrets", "create pods", "patch gputopologies.mcp2026.io", "patch nodes",
                "update leases.coordination.k8s.io/other", "list leases.coordination.k8s.io",
            ],
        ),
        (
            "mcp2026-device-plugin",
            [
                "get gputopologies.mcp2026.io", "create gputopologies.mcp2026.io",
                "patch gputopologies.mcp2026.io", "patch gputopologies.mcp2026.io/status",
                "watch gputopologies.mcp2026.io", "get nodes", "patch nodes", "watch pods",
                "create events.events.k8s.io",
            ],
            [
                "delete gputopologies.mcp2026.io", "list nodes", "update nodes", "patch nodes/status",
                "delete nodes", "get pods", "patch pods", "get secrets", "create events", "list configmaps",
            ],
        ),
    ],
)  # fmt: skip
def test_each_program_may_do_its_work_and_no_more(
    control_plane: Cluster, installed: str, account: str, allowed: list[str], refused: list[str]
) -> None:
    def review(right: str) -> dict[str, Any]:
        verb, what, *rest = right.split()
        resource, _, sub = what.partition("/")
        subresources = {"status", "binding", "exec", "token"}
        namespace = rest[1] if rest else installed
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{installed}:{account}",
                "resourceAttributes": {
                    "verb": verb,
                    "resource": resource.partition(".")[0],
                    "group": resource.partition(".")[2],
                    "namespace": namespace,
                    "subresource" if sub in subresources else "name": sub,
                },
            },
        }

    def granted(rights: list[str]) -> list[str]:
        asked = "\n---\n".join(json.dumps(review(right)) for right in rights)
        answers = control_plane.kubectl(
            "create", "-f", "-", "-o", 'jsonpath={.status.allowed}{"\\n"}', input=asked
        )
        return [right for right, one in zip(rights, answers.split(), strict=True) if one == "true"]

    assert granted(allowed) == allowed
    assert granted(refused) == []


def test_rights_in_named_namespaces_end_there(
    control_plane: Cluster, namespace: str, helm: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    flags = ("--namespace", namespace, "--kubeconfig", str(control_plane.kubeconfig))
    answer = helm("install", "mcp2026", str(CHART), *flags, "--set", "operator.watchNamespaces={kube-public}")
    assert answer.returncode == 0, answer.stderr
    try:
        who = f"--as=system:serviceaccount:{namespace}:mcp2026-operator"
        assert (
            control_plane.kubectl(
                "auth", "can-i", "create", "deployments.apps", "-n", "kube-public", who
            ).strip()
            == "yes"
        )
        with pytest.raises(ClusterError):
            control_plane.kubectl("auth", "can-i", "create", "deployments.apps", "-n", "default", who)
    finally:
        helm("uninstall", "mcp2026", "--wait", *flags)
