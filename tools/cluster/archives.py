"""Writes container images by hand, as archives that containerd and buildah read.

For images that hold one static program, and for the base image whose one layer debootstrap makes. The same
content always gives the same bytes, so a digest tells whether anything changed.
"""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.cluster.cache import replacing

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""The names that the container world gives to processors."""


def image_config(
    layer_digest: str,
    *,
    entrypoint: Sequence[str] = (),
    command: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the configuration of an image of one layer."""
    machine = os.uname().machine
    return {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {
            "Entrypoint": list(entrypoint),
            "Cmd": list(command),
            "Env": [f"{name}={value}" for name, value in (environment or {}).items()],
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        "history": [{"created_by": "mcp2026"}],
    }


def program_layer(files: Mapping[str, Path]) -> bytes:
    """Return a layer that holds executable files, by their path in the image."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        folders = {parent.as_posix() for name in files for parent in Path(name).parents} - {"/", "."}
        for folder in sorted(folders):
            entry = tarfile.TarInfo(folder.strip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, source in sorted(files.items()):
            entry = tarfile.TarInfo(name.strip("/"))
            entry.mode, entry.size = 0o755, source.stat().st_size
            with source.open("rb") as content:
                tar.addfile(entry, content)
    return stream.getvalue()


def write_archive(target: Path, tag: str, layer: Path | bytes, config: Mapping[str, Any]) -> Path:
    """Write an image of one layer as a docker-archive."""
    encoded = json.dumps(config, sort_keys=True).encode()
    config_name = hashlib.sha256(encoded).hexdigest() + ".json"
    layer_name = config["rootfs"]["diff_ids"][0].removeprefix("sha256:") + ".tar"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [tag], "Layers": [layer_name]}]).encode()
    with replacing(target) as temporary, tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in (("manifest.json", manifest), (config_name, encoded)):
            tar.addfile(_entry(name, len(content)), io.BytesIO(content))
        if isinstance(layer, bytes):
            tar.addfile(_entry(layer_name, len(layer)), io.BytesIO(layer))
        else:
            with layer.open("rb") as stream:
                tar.addfile(_entry(layer_name, layer.stat().st_size), stream)
    return target


def write_program_image(target: Path, tag: str, files: Mapping[str, Path], entrypoint: Sequence[str]) -> Path:
    """Write an image that holds nothing but static programs."""
    layer = program_layer(files)
    config = image_config(hashlib.sha256(layer).hexdigest(), entrypoint=entrypoint)
    return write_archive(target, tag, layer, config)


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.size = 0o644, size
    return entry
