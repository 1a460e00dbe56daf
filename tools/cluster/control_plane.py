"""Starts etcd, the API server, the controller manager and the scheduler of one run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tools.cluster.certificates import Authority, KeyPair, signing_key
from tools.cluster.go_programs import build
from tools.cluster.kubeconfig import write_kubeconfig
from tools.cluster.ports import claim
from tools.cluster.processes import start
from tools.cluster.progress import Report
from tools.cluster.readiness import READY_TIMEOUT_S, HttpProbe, wait_ready
from tools.cluster.record import Record, StartedProgram

SERVICE_NETWORK = "10.96.0.0/16"
SERVICE_API_ADDRESS = "10.96.0.1"
"""The first address of the service network: the API server, as pods see it."""


@dataclass(frozen=True, slots=True)
class ControlPlaneOptions:
    """What differs between control planes."""

    advertise_address: str | None = None
    """Where pods and the kubelet reach the API server; None if there are none: it stays on loopback."""
    pod_network: str | None = None
    """The addresses of pods, if the controller manager is to share them out to nodes."""
    scheduler: bool = True
    scheduler_config: str | None = None
    """A KubeSchedulerConfiguration, as YAML text; its clientConnection is filled in here."""
    extra_arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """More arguments for a program, by its name: the last of two equal flags wins."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running control plane: where it answers and who signs for it."""

    api_url: str
    """On loopback for clients of this machine."""
    api_port: int
    authority: Authority
    kubeconfig: Path
    """Of a cluster administrator."""


def start_control_plane(record: Record, options: ControlPlaneOptions, report: Report) -> ControlPlane:
    """Start the programs in the order in which they need each other, and return when all are ready."""
    folder = Path(record.folder)
    etcd_client, etcd_peer, api_port, controllers_port, scheduler_port = claim(record, 5)
    programs = {name: build(name, report) for name in ("kube-apiserver", "kube-controller-manager")}
    etcd = start_etcd(record, build("etcd", report), etcd_client, etcd_peer)

    authority = Authority(folder / "pki", "ca")
    front_proxy = Authority(folder / "pki", "front-proxy-ca")
    admin = authority.issue("admin", "mcp2026-admin", organizations=["system:masters"])
    serving = authority.issue("serving", "kube-apiserver", hosts=serving_hosts(options.advertise_address))
    account_key = signing_key(folder / "pki" / "service-accounts.key")
    proxy_client = front_proxy.issue("front-proxy-client", "front-proxy-client")
    api_url = f"https://127.0.0.1:{api_port}"

    wait_ready(etcd, HttpProbe(f"http://127.0.0.1:{etcd_client}/health"), READY_TIMEOUT_S)
    api_server = start(
        record,
        "kube-apiserver",
        [
            programs["kube-apiserver"],
            *api_server_arguments(
                etcd_port=etcd_client,
                port=api_port,
                authority=authority.certificate,
                serving=serving,
                account_key=account_key,
                front_proxy_authority=front_proxy.certificate,
                front_proxy_client=proxy_client,
                kubelet_client=admin,
                advertise_address=options.advertise_address,
            ),
            *options.extra_arguments.get("kube-apiserver", ()),
        ],
    )
    record.api_url = api_url
    record.save()
    config = write_kubeconfig(folder / "kubeconfig", api_url, authority.certificate, admin)
    wait_ready(api_server, HttpProbe(f"{api_url}/readyz", str(authority.certificate), admin), READY_TIMEOUT_S)

    waiting = [
        (
            start(
                record,
                "kube-controller-manager",
                [
                    programs["kube-controller-manager"],
                    *controller_manager_arguments(
                        controllers_port, config, authority, serving, account_key, options.pod_network
                    ),
                    *options.extra_arguments.get("kube-controller-manager", ()),
                ],
            ),
            controllers_port,
        )
    ]
    if options.scheduler:
        settings = folder / "scheduler.yaml"
        settings.write_text(scheduler_configuration(options.scheduler_config, config))
        arguments = [f"--config={settings}", *component_serving(scheduler_port, serving)]
        extra = options.extra_arguments.get("kube-scheduler", ())
        command: list[str | Path] = [build("kube-scheduler", report), *arguments, *extra]
        waiting.append((start(record, "kube-scheduler", command), scheduler_port))
    for program, port in waiting:
        probe = HttpProbe(f"https://127.0.0.1:{port}/healthz", str(authority.certificate))
        wait_ready(program, probe, READY_TIMEOUT_S)
    controllers = waiting[0][0]
    account = f"{api_url}/api/v1/namespaces/default/serviceaccounts/default"
    wait_ready(controllers, HttpProbe(account, str(authority.certificate), admin), READY_TIMEOUT_S)
    return ControlPlane(api_url, api_port, authority, config)


def start_etcd(record: Record, program: Path, client_port: int, peer_port: int) -> StartedProgram:
    """Start the database; nothing is synced to the disk, for nothing outlives the run."""
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    arguments = [
        "--name=etcd",
        f"--data-dir={record.folder}/etcd",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=etcd={peer}",
        "--quota-backend-bytes=2147483648",
        "--snapshot-count=10000",
    ]
    return start(record, "etcd", [program, *arguments])


def serving_hosts(advertise_address: str | None) -> list[str]:
    """Return the names and addresses under which the API server may be called."""
    hosts = ["127.0.0.1", "localhost", SERVICE_API_ADDRESS]
    hosts += [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ]
    return hosts + ([advertise_address] if advertise_address else [])


def api_server_arguments(
    *,
    etcd_port: int,
    port: int,
    authority: Path,
    serving: KeyPair,
    account_key: Path,
    front_proxy_authority: Path,
    front_proxy_client: KeyPair,
    kubelet_client: KeyPair,
    advertise_address: str | None,
) -> list[str]:
    """Return the API server's arguments.

    Without an address to advertise it listens on loopback alone, and publishes no endpoints of its own:
    Kubernetes refuses loopback addresses there.
    """
    arguments = [
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--secure-port={port}",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        f"--client-ca-file={authority}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={account_key}",
        f"--service-account-signing-key-file={account_key}",
        f"--requestheader-client-ca-file={front_proxy_authority}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={front_proxy_client.certificate}",
        f"--proxy-client-key-file={front_proxy_client.key}",
        f"--kubelet-client-certificate={kubelet_client.certificate}",
        f"--kubelet-client-key={kubelet_client.key}",
        f"--kubelet-certificate-authority={authority}",
        "--kubelet-preferred-address-types=InternalIP",
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1000",
        "--profiling=false",
    ]
    if advertise_address is None:
        return [*arguments, "--bind-address=127.0.0.1", "--endpoint-reconciler-type=none"]
    return [
        *arguments,
        "--bind-address=0.0.0.0",
        f"--advertise-address={advertise_address}",
        "--enable-aggregator-routing=true",
    ]


def component_serving(port: int, serving: KeyPair) -> list[str]:
    """Return where a component answers health checks: on loopback, with the run's own certificate."""
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
    ]


def controller_manager_arguments(
    port: int,
    kubeconfig: Path,
    authority: Authority,
    serving: KeyPair,
    account_key: Path,
    pod_network: str | None,
) -> list[str]:
    """Return the controller manager's arguments; a lone one needs no leader election."""
    arguments = [
        *component_serving(port, serving),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={account_key}",
        f"--root-ca-file={authority.certificate}",
        f"--cluster-signing-cert-file={authority.pair.certificate}",
        f"--cluster-signing-key-file={authority.pair.key}",
        "--profiling=false",
    ]
    if pod_network is not None:
        arguments += ["--allocate-node-cidrs=true", f"--cluster-cidr={pod_network}"]
    return arguments


def scheduler_configuration(given: str | None, kubeconfig: Path) -> str:
    """Return a scheduler configuration: the one given, connected to this run, and without an election."""
    content = yaml.safe_load(given) if given else {}
    kinds = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    connection = {**content.get("clientConnection", {}), "kubeconfig": str(kubeconfig)}
    own = {"clientConnection": connection, "leaderElection": {"leaderElect": False}}
    return str(yaml.safe_dump({**kinds, **content, **own}, sort_keys=False))
