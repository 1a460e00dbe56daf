"""How the node's GPUs shall be shared, from all that was said so far: configuration and spec. No I/O.

What cannot be taken changes nothing: the last good configuration and the last good spec hold on, and the
snapshot tells what was refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.gpu_topology import GpuSpec, GPUTopologySpec
from mcp2026.device_plugin.configuration import Configuration, parse_spec, wanted_sharing
from mcp2026.device_plugin.devices import Refusal, Snapshot


@dataclass(frozen=True, slots=True)
class SeenSpec:
    """The spec of the node's `GPUTopology` as the API server has it; None: there is no such object."""

    document: Any = None
    generation: int = 0


class Wishes:
    """Collects what is said for the node `node`. Nothing is wanted before `begin` or the first spec."""

    def __init__(self, node: str, configuration: Configuration) -> None:
        self._node = node
        self._configuration = configuration
        self._configuration_problem = ""
        self._seen: SeenSpec | None = None
        self._good = GPUTopologySpec()
        self._good_generation = 0
        self._begun = False

    @property
    def begun(self) -> bool:
        """Whether it is known what is wanted."""
        return self._begun

    def begin(self) -> None:
        """Go by the configuration alone: the spec is not read, or cannot be for now."""
        self._begun = True

    def configuration_read(self, configuration: Configuration) -> None:
        """Take a new configuration."""
        self._configuration, self._configuration_problem = configuration, ""

    def configuration_refused(self, problem: str) -> None:
        """Keep the old configuration, and say why."""
        self._configuration_problem = problem

    def spec_seen(self, seen: SeenSpec) -> None:
        """Take note of the spec that the API server has now."""
        self._seen, self._begun = seen, True

    def without_a_gpu(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the fields of the configuration for this node that name a GPU which it does not have."""
        node = self._configuration.nodes.get(self._node)
        return () if node is None else _not_here(f"nodes.{self._node}.gpus", node.gpus, snapshot)

    def for_other_nodes(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the fields for all nodes that name a GPU which this node does not have."""
        return _not_here("gpus", self._configuration.gpus, snapshot)

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Return `snapshot` with what is wanted of its GPUs, and what was refused."""
        if not self._begun:
            return snapshot
        refusals = [Refusal(self._configuration_problem)] if self._configuration_problem else []
        if self._seen is not None:
            try:
                self._good = parse_spec(self._seen.document, snapshot.machine, snapshot.unreadable)
                self._good_generation = self._seen.generation
            except InvalidResourceError as error:
                refusals.append(Refusal(str(error), self._seen.generation))
        layers = (*self._configuration.layers(self._node), self._good)
        return replace(
            snapshot,
            wanted=wanted_sharing(layers, snapshot.machine),
            placing=self._configuration.shares,
            spec_generation=self._good_generation,
            refusals=tuple(refusals),
        )


def _not_here(path: str, gpus: Sequence[GpuSpec], snapshot: Snapshot) -> tuple[str, ...]:
    """Return the entries at `path` whose GPU is not there; one that cannot be read counts as there."""
    indices = {gpu.index for gpu in snapshot.machine.gpus} | snapshot.unreadable.keys()
    return tuple(
        f"{path}[{place}].index: {gpu.index}" for place, gpu in enumerate(gpus) if gpu.index not in indices
    )
