"""Builds the Go programs that a cluster consists of, and others for tests, each only when it is asked for.

A program lies in the cache under the hash of all that decides its content (module files, flags), so a
version change builds anew and a second run starts at once.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.cluster.cache import cache_folder, content_key, held, replacing
from tools.cluster.errors import ClusterError
from tools.cluster.progress import Report, run_reporting, to_stderr
from tools.cluster.toolchain import find_go, required_version

MODULES = Path(__file__).parent / "programs"

GO_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly", "GOWORK": "off"}
"""Linux binaries without a libc: they run in an image that holds nothing else."""


@dataclass(frozen=True, slots=True)
class Program:
    """A Go program: the module here that pins it, its import path, what its version is read from."""

    name: str
    module: str
    package: str
    version_of: str
    """The required module whose version the program prints; empty for programs of our own."""
    version_variables: tuple[str, ...] = ()


_KUBERNETES_VERSION = ("k8s.io/component-base/version.gitVersion", "k8s.io/client-go/pkg/version.gitVersion")


def _kubernetes(name: str) -> Program:
    package = f"k8s.io/kubernetes/cmd/{name}"
    return Program(name, "kubernetes", package, "k8s.io/kubernetes", _KUBERNETES_VERSION)


_KUBERNETES_PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "kube-proxy",
)
PROGRAMS: dict[str, Program] = {
    **{name: _kubernetes(name) for name in _KUBERNETES_PROGRAMS},
    "etcd": Program("etcd", "etcd", "go.etcd.io/etcd/server/v3", ""),
    "helm": Program(
        "helm",
        "helm",
        "helm.sh/helm/v3/cmd/helm",
        "helm.sh/helm/v3",
        ("helm.sh/helm/v3/internal/version.version",),
    ),
    "kwok": Program(
        "kwok",
        "kwok",
        "sigs.k8s.io/kwok/cmd/kwok",
        "sigs.k8s.io/kwok",
        ("sigs.k8s.io/kwok/pkg/consts.Version",),
    ),
    "grpcurl": Program("grpcurl", "grpcurl", "github.com/fullstorydev/grpcurl/cmd/grpcurl", ""),
    "h2spec": Program("h2spec", "h2spec", "github.com/summerwind/h2spec/cmd/h2spec", ""),
    "pause": Program("pause", "pause", ".", ""),
}
"""Every program that can be built, by name."""


def module_version(go_mod: str, module: str) -> str:
    """Return the version of a module that a go.mod requires directly."""
    found = re.search(rf"^(?:require )?\s*{re.escape(module)} (v\S+)\s*$", go_mod, re.MULTILINE)
    if found is None:
        raise ValueError(f"the go.mod does not require {module}")
    return found[1]


def kubernetes_version() -> str:
    """Return the version of Kubernetes that clusters run, such as v1.34.4."""
    return module_version((MODULES / "kubernetes" / "go.mod").read_text(), "k8s.io/kubernetes")


def linker_flags(program: Program, go_mod: str) -> str:
    """Return the flags that strip the program and make it print its version."""
    flags = ["-s", "-w"]
    if program.version_of:
        version = module_version(go_mod, program.version_of)
        flags += [f"-X {variable}={version}" for variable in program.version_variables]
        if program.module == "kubernetes":
            major, minor, *_ = version.removeprefix("v").split(".")
            flags += [f"-X k8s.io/component-base/version.gitMajor={major}"]
            flags += [f"-X k8s.io/component-base/version.gitMinor={minor}"]
    return " ".join(flags)


def program_key(program: Program, module_files: Mapping[str, bytes], machine: str) -> str:
    """Return the cache key of a program: module files, linker flags, environment and processor type."""
    flags = linker_flags(program, module_files["go.mod"].decode())
    environment = " ".join(f"{name}={value}" for name, value in sorted(GO_ENVIRONMENT.items()))
    extra = {"(flags)": flags.encode(), "(environment)": environment.encode(), "(machine)": machine.encode()}
    return content_key({**module_files, **extra})


def _module_files(program: Program) -> dict[str, bytes]:
    folder = MODULES / program.module
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def program_path(name: str) -> Path:
    """Return where a program lies in the cache, whether it has been built or not."""
    try:
        program = PROGRAMS[name]
    except KeyError:
        known = ", ".join(PROGRAMS)
        raise ClusterError(f"there is no program {name!r} to build; known are {known}") from None
    key = program_key(program, _module_files(program), os.uname().machine)
    return cache_folder() / "programs" / key / name


def build(name: str, report: Report = to_stderr) -> Path:
    """Return the path of a program, building it first if the cache does not have it."""
    target = program_path(name)
    if target.exists():
        return target
    program = PROGRAMS[name]
    go_mod = (MODULES / program.module / "go.mod").read_text()
    lock = cache_folder() / "programs" / f"{name}.lock"
    with held(lock, lambda: report(f"waiting for another process that builds {name}")):
        if target.exists():
            return target
        go = find_go(required_version(go_mod), report)
        with replacing(target) as temporary:
            flags: list[str | Path] = [
                "-trimpath",
                "-ldflags",
                linker_flags(program, go_mod),
                "-o",
                temporary,
            ]
            run_reporting(
                f"building {name}",
                [go, "build", *flags, program.package],
                report,
                log=lock.with_suffix(".log"),
                folder=MODULES / program.module,
                environment={**os.environ, **GO_ENVIRONMENT, "GOTOOLCHAIN": "local"},
            )
    return target
