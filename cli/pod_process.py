"""How a pod's container becomes a process of this machine: its arguments and files with local paths.

Pure: from the Deployment's template and the folders that stand in for volumes to a command line.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from mcp2026.api.names import LIVE_REVISION_ANNOTATION, MODEL_CACHE_VOLUME, SERVING_CONFIG_KEY
from mcp2026.api.serving import ServingConfig, decode_serving_config, encode_serving_config
from mcp2026.cli.errors import CommandError
from mcp2026.cli.model_cache import user_cache
from mcp2026.operator.manifests import Manifest

LOOPBACK = "127.0.0.1"
TERMINATION_MESSAGE = "termination-message"
"""In the folder of a process: what it leaves when its model is stopped."""


@dataclass(frozen=True, slots=True)
class Mounts:
    """Where the container's paths lie on this machine, by mount path."""

    folders: Mapping[str, Path]

    def local(self, path: str) -> str:
        """Return the local form of a path in the container; a text that lies in no mount stays itself."""
        for mount, folder in self.folders.items():
            if path == mount or path.startswith(f"{mount}/"):
                return str(folder / PurePosixPath(path).relative_to(mount))
        return path


def mounts(deployment: Manifest, config_folder: Path, claims: Mapping[str, Path]) -> Mounts:
    """Return the mounts of the runtime container.

    Raises:
        CommandError: no folder stands in for a claim.

    """
    spec = deployment["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    folders: dict[str, Path] = {}
    for mount in spec["containers"][0]["volumeMounts"]:
        volume = volumes[mount["name"]]
        if "configMap" in volume:
            folders[mount["mountPath"]] = config_folder
        elif volume["name"] == MODEL_CACHE_VOLUME:
            folders[mount["mountPath"]] = user_cache()
        elif claim := volume.get("persistentVolumeClaim", {}).get("claimName"):
            if claim not in claims:
                raise CommandError(
                    f"the model needs the claim {claim!r}; name its folder: --volume {claim}=DIR"
                )
            folders[mount["mountPath"]] = claims[claim]
    return Mounts(folders)


def arguments(deployment: Manifest, where: Mounts, port: int, grpc_port: int, own: Path) -> list[str]:
    """Return the runtime container's arguments, changed to listen on these ports of loopback alone.

    There is no API server to watch: new revisions come by the file. `own` is the folder that stands in for
    what one pod alone has.
    """
    given = _without("--serving-config-map", deployment["spec"]["template"]["spec"]["containers"][0]["args"])
    replaced = {
        "--port": str(port),
        "--grpc-port": str(grpc_port),
        "--host": LOOPBACK,
        "--ending-directory": str(own),
        "--termination-message": str(own / TERMINATION_MESSAGE),
    }
    return [
        replaced.get(before, where.local(argument))
        for before, argument in zip(["", *given], given, strict=False)
    ]


def _without(flag: str, arguments: list[str]) -> list[str]:
    position = arguments.index(flag)
    return [*arguments[:position], *arguments[position + 2 :]]


def local_config(config_map: Manifest, where: Mounts) -> ServingConfig:
    """Return the serving configuration of a ConfigMap with local paths."""
    config = decode_serving_config(config_map["data"][SERVING_CONFIG_KEY].encode())
    versions = tuple(
        msgspec.structs.replace(version, path=where.local(version.path)) for version in config.versions
    )
    return msgspec.structs.replace(config, versions=versions)


def config_document(config: ServingConfig) -> bytes:
    """Return the content of the file that the process reads."""
    return encode_serving_config(config)


def pod_manifest(deployment: Manifest, position: int, container: dict[str, Any], *, ready: bool) -> Manifest:
    """Return a process as the pod that it stands for: scheduled, since it runs here, and ready or not."""
    template = deployment["spec"]["template"]
    name = f"{deployment['metadata']['name']}-{position}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **template["metadata"],
            "name": name,
            "uid": name,
            "namespace": deployment["metadata"]["namespace"],
        },
        "status": {
            "podIP": LOOPBACK,
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "True" if ready else "False"},
            ],
            "containerStatuses": [container],
        },
    }


def lease_manifest(pod: Manifest, revision: int) -> Manifest:
    """Return what a pod reports, as the Lease on which it does so in a cluster."""
    return {
        "metadata": {
            "name": pod["metadata"]["name"],
            "annotations": {LIVE_REVISION_ANNOTATION: str(revision)},
        },
        "spec": {"holderIdentity": pod["metadata"]["uid"]},
    }
