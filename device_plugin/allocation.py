"""Which GPUs should a container get, and what does it need to use them? Decided purely, over a snapshot."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mcp2026.api.names import GPU_UUIDS_VARIABLE
from mcp2026.device_plugin.devices import Snapshot
from mcp2026.topology.errors import NoSuchSetError
from mcp2026.topology.score import best_gpu_set

NVIDIA_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""Read by the NVIDIA container runtime, which then makes these GPUs appear in the container."""

CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
"""The device nodes that every container with a GPU needs beside /dev/nvidiaN."""


@dataclass(frozen=True, slots=True)
class Preference:
    """The GPUs to take, by UUID, and why: the score's terms, or why the first ones were taken instead."""

    uuids: tuple[str, ...]
    reason: str
    fell_back: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """What a container gets: environment variables, and device nodes of the host at the same path inside."""

    environment: dict[str, str]
    device_nodes: tuple[str, ...]


def preferred_gpus(
    snapshot: Snapshot, available: Sequence[str], must_include: Sequence[str], size: int
) -> Preference:
    """Return the best `size` of the `available` GPUs with all of `must_include` among them.

    What cannot be answered well is answered with the first available ones: an error here would fail the pod.
    """
    positions = snapshot.positions
    unknown = [uuid for uuid in {*available, *must_include} if uuid not in positions]
    if unknown:
        return _first(available, must_include, size, f"unknown devices: {', '.join(sorted(unknown))}")
    try:
        choice = best_gpu_set(
            snapshot.graph,
            [positions[uuid] for uuid in available],
            size,
            [positions[uuid] for uuid in must_include],
        )
    except NoSuchSetError as error:
        return _first(available, must_include, size, str(error))
    gpus = snapshot.machine.gpus
    return Preference(tuple(gpus[place].uuid for place in choice.gpus), str(choice.score))


def _first(available: Iterable[str], must_include: Iterable[str], size: int, reason: str) -> Preference:
    in_order = list(dict.fromkeys([*must_include, *available]))
    return Preference(tuple(in_order[: max(size, 0)]), reason, fell_back=True)


def grant(snapshot: Snapshot, uuids: Sequence[str], node_exists: Callable[[str], bool] | None) -> Grant:
    """Return what a container needs to use the GPUs `uuids`, in the order that the container sees them in.

    `node_exists` tells which device nodes the host has; None passes none of them, and leaves it to the NVIDIA
    container runtime.
    """
    last = len(snapshot.positions)
    ordered = sorted(uuids, key=lambda uuid: (snapshot.positions.get(uuid, last), uuid))
    names = ",".join(ordered)
    nodes: tuple[str, ...] = ()
    if node_exists is not None:
        minors = [snapshot.minor_numbers[uuid] for uuid in ordered if uuid in snapshot.minor_numbers]
        wanted = (*CONTROL_NODES, *(f"/dev/nvidia{minor}" for minor in minors))
        nodes = tuple(node for node in wanted if node_exists(node))
    return Grant({NVIDIA_VISIBLE_DEVICES: names, GPU_UUIDS_VARIABLE: names}, nodes)
