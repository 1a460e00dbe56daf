"""What must still happen before a GPU may be changed, in words for people. Pure."""

from collections.abc import Mapping, Set

from mcp2026.api.gpu_devices import parse_device_id
from mcp2026.api.gpu_topology import Holder
from mcp2026.device_plugin.sharing.observation import GpuFacts, MpsDaemon, Observation, Step
from mcp2026.device_plugin.sharing.steps import LayoutChange

SETTLING_S = 10.0
"""How long devices must be off the list when the kubelet does not tell which ones it may give away."""
MOST_NAMES = 5
"""Pods or processes that a message names."""


def waits_for(
    uuid: str,
    facts: GpuFacts,
    daemon: MpsDaemon | None,
    seen: Observation,
    step: Step | None,
    layout: LayoutChange | None,
    held: Mapping[str, Holder | None],
    withdrawn_at: float,
    now: float,
) -> str:
    """Return what is still waited for before the GPU may change; empty when it may."""
    if seen.kubelet is None:
        return f"waits for the kubelet to tell who holds the GPU ({seen.kubelet_failure or 'not asked yet'})"
    kept = _kept(facts, layout, held.keys())
    if blocking := {device: holder for device, holder in held.items() if device not in kept}:
        return f"waits for {_pods(blocking)}"
    if seen.kubelet.asked_at <= withdrawn_at:
        return "waits for a fresh answer of the kubelet"
    if seen.kubelet.allocatable is None:
        return "waits for the kubelet to settle" if now - withdrawn_at < SETTLING_S else ""
    names = {uuid, *(instance.uuid for instance in facts.instances or ())}
    listed = {
        device
        for device in seen.kubelet.allocatable
        if parse_device_id(device).uuid in names and device not in kept
    }
    if listed:
        return f"waits for the kubelet to take {_count(len(listed), 'device')} off its list"
    foreign = facts.pids - (frozenset() if daemon is None else daemon.pids)
    if step is not None and foreign and not kept:
        numbers = ", ".join(map(str, sorted(foreign)[:MOST_NAMES]))
        processes = _count(len(foreign), "process", "es")
        return f"waits for {processes} that belong to no pod which holds it, to be ended: {numbers}"
    return ""


def _kept(facts: GpuFacts, layout: LayoutChange | None, held: Set[str]) -> Set[str]:
    """Return the MIG devices that are held and that the change leaves as they are."""
    if layout is None or facts.instances is None:
        return frozenset()
    destroyed = {instance.uuid for instance in layout.destroy}
    return {instance.uuid for instance in facts.instances if instance.uuid in held} - destroyed


def _pods(blocking: Mapping[str, Holder | None]) -> str:
    names = sorted({f"{holder.namespace}/{holder.pod}" for holder in blocking.values() if holder is not None})
    unnamed = sum(holder is None for holder in blocking.values())
    parts = []
    if names:
        more = ", …" if len(names) > MOST_NAMES else ""
        parts.append(f"{_count(len(names), 'pod')}: {', '.join(names[:MOST_NAMES])}{more}")
    if unnamed:
        parts.append(f"{_count(unnamed, 'device')} given away just now")
    return " and ".join(parts)


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{plural}"
