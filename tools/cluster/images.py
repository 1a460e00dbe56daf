"""Builds container images on this machine; no registry and no container engine is needed.

Images of one static program are written by hand; others are built from a Containerfile by buildah, on a
base image that debootstrap makes. All are archives in the cache, found by what they are made of.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools.cluster.archives import image_config, write_archive, write_program_image
from tools.cluster.cache import cache_folder, content_key, folder_contents, held, replacing
from tools.cluster.containerd import PAUSE_IMAGE
from tools.cluster.errors import ClusterError
from tools.cluster.go_programs import build, kubernetes_version, program_path
from tools.cluster.packages import find_program
from tools.cluster.progress import Report, run_reporting, to_stderr

BASE_IMAGE = "localhost/mcp2026-base:bookworm"
SUITE = "bookworm"

BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv")
"""What the base image holds beyond Debian's smallest set."""

BASE_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}

BASE_LEFT_OUT = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "dev",
)
"""Left out of the base image: no program that runs in a pod reads these."""

RECIPE = 1
"""Raised by hand when the recipe changes in a way that its inputs do not show."""


def pause_image(report: Report = to_stderr) -> Path:
    """Return the archive of the image that holds each pod's namespaces."""
    return program_image("pause", PAUSE_IMAGE, report)


def program_image(name: str, tag: str, report: Report = to_stderr) -> Path:
    """Return the archive of an image that holds one Go program at /NAME and starts it."""
    program = build(name, report)
    key = content_key({"program": program_path(name).parent.name.encode(), "tag": tag.encode()})
    archive = _archives() / f"{name}-{key}.tar"
    with held(archive.with_suffix(".lock")):
        if not archive.exists():
            write_program_image(archive, tag, {f"/{name}": program}, [f"/{name}"])
    return archive


def scheduler_image(report: Report = to_stderr) -> Path:
    """Return the archive of `localhost/kube-scheduler:VERSION`, for a scheduler that runs in a pod."""
    return program_image("kube-scheduler", f"localhost/kube-scheduler:{kubernetes_version()}", report)


def base_image_archive() -> Path:
    """Return where the base image lies in the cache, whether it has been made or not."""
    recipe = f"{RECIPE} {SUITE} {' '.join(BASE_PACKAGES)} {' '.join(BASE_LEFT_OUT)} {os.uname().machine}"
    return _archives() / f"base-{content_key({'recipe': recipe.encode()})}.tar"


def base_image(report: Report = to_stderr) -> Path:
    """Return the archive of the base image, made by debootstrap if the cache does not have it."""
    archive = base_image_archive()
    if archive.exists():
        return archive
    debootstrap = find_program("debootstrap")
    if debootstrap is None or os.geteuid() != 0:
        raise ClusterError("making the base image needs root and the package debootstrap")
    waiting = "waiting for another process that makes the base image"
    with held(archive.with_suffix(".lock"), lambda: report(waiting)):
        if archive.exists():
            return archive
        work = archive.with_suffix(".work")
        shutil.rmtree(work, ignore_errors=True)
        try:
            command = [debootstrap, "--variant=minbase", f"--include={','.join(BASE_PACKAGES)}", SUITE]
            log = archive.with_suffix(".log")
            run_reporting(
                "making the base image with debootstrap",
                [*command, work / "root", *debian_mirror()],
                report,
                log=log,
            )
            layer = work / "layer.tar"
            left_out = [f"--exclude=./{path}/*" for path in BASE_LEFT_OUT]
            tar = ["tar", "--create", "--sort=name", "--numeric-owner", "--one-file-system"]
            run_reporting(
                "packing the base image",
                [*tar, *left_out, "--file", layer, "--directory", work / "root", "."],
                report,
                log=log,
            )
            with layer.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            config = image_config(digest, command=["/bin/bash"], environment=BASE_ENVIRONMENT)
            write_archive(archive, BASE_IMAGE, layer, config)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return archive


def build_image(
    containerfile: Path,
    context: Path,
    tag: str,
    build_args: Mapping[str, str] | None = None,
    report: Report = to_stderr,
) -> Path:
    """Return the docker-archive of an image built from a Containerfile; BASE_IMAGE is given to it.

    The result is kept under the hash of the Containerfile, all files of the context and the arguments, so
    an unchanged image is not built again.
    """
    base = base_image(report)
    arguments = {"BASE_IMAGE": BASE_IMAGE, **(build_args or {})}
    inputs = {f"context/{name}": content for name, content in folder_contents(context).items()}
    inputs |= {f"argument/{name}": value.encode() for name, value in arguments.items()}
    inputs |= {"containerfile": containerfile.read_bytes(), "tag": tag.encode(), "base": base.name.encode()}
    name = tag.rpartition("/")[2].replace(":", "-")
    archive = _archives() / f"{name}-{content_key(inputs)}.tar"
    with held(cache_folder() / "buildah.lock", lambda: report("waiting for another image to be built")):
        if not archive.exists():
            _load_base(base, report)
            words = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
            log = archive.with_suffix(".log")
            run_reporting(
                f"building the image {tag}",
                [
                    *_buildah(), "bud", "--isolation", "chroot", "--pull-never", "--layers=false",
                    "--force-rm", "--format", "docker", *words,
                    "--file", containerfile, "--tag", tag, context,
                ],
                report,
                log=log,
            )  # fmt: skip
            with replacing(archive) as temporary:
                push = [*_buildah(), "push", "--quiet", tag, f"docker-archive:{temporary}:{tag}"]
                run_reporting(f"saving the image {tag}", push, report, log=log)
            _run_quietly([*_buildah(), "rmi", tag])
    return archive


def _load_base(base: Path, report: Report) -> None:
    """Bring the base image into buildah's store, unless this very one is there."""
    marker = cache_folder() / "buildah" / "base"
    if marker.exists() and marker.read_text() == base.name:
        return
    marker.parent.mkdir(parents=True, exist_ok=True)
    pull = [*_buildah(), "pull", "--quiet", f"docker-archive:{base}"]
    run_reporting("loading the base image into buildah", pull, report, log=base.with_suffix(".log"))
    marker.write_text(base.name)


def _buildah() -> list[str]:
    """Return the start of a buildah command that keeps everything in the cache."""
    buildah = find_program("buildah")
    if buildah is None:
        raise ClusterError("buildah is not installed")
    store = cache_folder() / "buildah"
    return [
        buildah,
        "--storage-driver",
        "vfs",
        "--root",
        str(store / "store"),
        "--runroot",
        str(store / "run"),
    ]


def _run_quietly(command: list[str]) -> None:
    subprocess.run(command, capture_output=True, check=False)


def debian_mirror() -> list[str]:
    """Return the Debian mirror that this machine is set up to use, alone in a list; empty if it has none."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", f"Codename: {SUITE}"]
    if find_program("apt-get") is None:
        return []
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.split()[:1]


def _archives() -> Path:
    return cache_folder() / "images"
