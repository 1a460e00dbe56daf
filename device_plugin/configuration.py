"""How shall the node's GPUs be shared? Said by the configuration file and the spec of `GPUTopology`. Pure."""

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any

import msgspec
import yaml

from mcp2026.api.errors import ConfigurationError, InvalidResourceError
from mcp2026.api.gpu_sharing import EXCLUSIVE, Sharing, check_sharing
from mcp2026.api.gpu_topology import MOST_GPUS, GpuSpec, GPUTopologySpec
from mcp2026.api.schema_errors import explain
from mcp2026.api.yaml_errors import NOT_YAML
from mcp2026.device_plugin.health.settings import HealthSettings, check_health_settings
from mcp2026.device_plugin.share_placing import SharePlacing
from mcp2026.topology.machine import Gpu, Machine


class Configuration(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The configuration file: for the GPUs of every node, and by name of the node for single ones.

    `sharing` is for all GPUs that `gpus` does not name.
    """

    sharing: Sharing | None = None
    gpus: Annotated[tuple[GpuSpec, ...], msgspec.Meta(max_length=64)] = ()
    nodes: dict[str, GPUTopologySpec] = {}
    health: HealthSettings = HealthSettings()
    shares: SharePlacing = SharePlacing()

    def layers(self, node: str) -> tuple[GPUTopologySpec, ...]:
        """Return what is said for `node`, from the most general to the most special."""
        everywhere = GPUTopologySpec(self.sharing, self.gpus)
        return (everywhere, self.nodes[node]) if node in self.nodes else (everywhere,)


def parse_configuration(text: str, source: str) -> Configuration:
    """Return what the YAML file `source` says; an empty one says nothing.

    Raises:
        ConfigurationError: it is not YAML, has a field that does not exist, or a share that cannot be.

    """
    try:
        document: Any = yaml.safe_load(text)
    except NOT_YAML as error:
        raise ConfigurationError(source, f"not YAML: {error}") from error
    document = {} if document is None else document
    try:
        configuration = _converted(document)
        for path, spec in (
            ("", GPUTopologySpec(configuration.sharing, configuration.gpus)),
            *((f"nodes.{node}.", spec) for node, spec in configuration.nodes.items()),
        ):
            _check(spec, path)
            _check_indices(spec.gpus, path)
        check_health_settings(configuration.health)
    except InvalidResourceError as error:
        raise ConfigurationError(source, str(error)) from error
    return configuration


def _converted(document: Any) -> Configuration:
    try:
        return msgspec.convert(document, Configuration)
    except msgspec.ValidationError as error:
        raise explain(error, document, Configuration, "configuration") from error


def parse_spec(spec: Any, machine: Machine, unreadable: Collection[int] = ()) -> GPUTopologySpec:
    """Return the spec of a `GPUTopology` for `machine`.

    It may speak of the GPUs with the indices `unreadable`, too: one that fails must not change the others.

    Raises:
        InvalidResourceError: a field does not fit the schema, or names a GPU or a share that cannot be.

    """
    document = spec or {}
    try:
        parsed = msgspec.convert(document, GPUTopologySpec)
    except msgspec.ValidationError as error:
        raise explain(error, document, GPUTopologySpec, "spec") from error
    _check(parsed, "spec.")
    indices = {gpu.index for gpu in machine.gpus} | set(unreadable)
    for place, gpu in enumerate(parsed.gpus):
        if gpu.index not in indices:
            raise InvalidResourceError(
                f"spec.gpus[{place}].index",
                f"{gpu.index} is no GPU of this node",
                ", ".join(str(index) for index in sorted(indices)),
            )
    return parsed


def _check(spec: GPUTopologySpec, path: str) -> None:
    if spec.sharing is not None:
        check_sharing(spec.sharing, f"{path}sharing")
    seen: set[int] = set()
    for place, gpu in enumerate(spec.gpus):
        if gpu.index in seen:
            raise InvalidResourceError(
                f"{path}gpus[{place}].index", f"{gpu.index} comes twice", "each index once"
            )
        seen.add(gpu.index)
        check_sharing(gpu.sharing, f"{path}gpus[{place}].sharing")


def _check_indices(gpus: Sequence[GpuSpec], path: str) -> None:
    """Refuse what no node can have. What another node may have is for each node to tell."""
    for place, gpu in enumerate(gpus):
        if gpu.index >= MOST_GPUS:
            raise InvalidResourceError(
                f"{path}gpus[{place}].index", f"{gpu.index} is no GPU of any node", f"0 to {MOST_GPUS - 1}"
            )


def wanted_sharing(layers: Sequence[GPUTopologySpec], machine: Machine) -> dict[str, Sharing]:
    """Return how each GPU of `machine` shall be shared, by UUID.

    `layers` go from the most general to the most special; the last that speaks of a GPU holds.
    """
    return {gpu.uuid: _wanted(layers, gpu) for gpu in machine.gpus}


def _wanted(layers: Iterable[GPUTopologySpec], gpu: Gpu) -> Sharing:
    wanted = EXCLUSIVE
    for layer in layers:
        named = next((entry.sharing for entry in layer.gpus if entry.index == gpu.index), None)
        wanted = named or layer.sharing or wanted
    return wanted
