"""What a model waits for, and whether it would wait for ever."""

from collections import deque
from collections.abc import Iterable, Mapping

from mcp2026.api.conditions import ConditionType
from mcp2026.api.lifecycle import Phase
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import at, condition_of

Graph = Mapping[str, Iterable[str]]
"""The models of one namespace, and the names that each has in dependsOn."""


def named_in(resource: Manifest) -> tuple[str, ...]:
    """Return the names in a resource's dependsOn, even if the rest of it cannot be understood."""
    wanted = at(resource, "spec", "dependsOn")
    return tuple(name for name in wanted if isinstance(name, str)) if isinstance(wanted, list) else ()


def is_met(dependency: Manifest | None) -> bool:
    """Say whether a model that others wait for serves, or has completed its work."""
    if dependency is None or "deletionTimestamp" in dependency["metadata"]:
        return False
    if at(dependency, "status", "phase") in (Phase.SUCCEEDED, Phase.COMPLETED):
        return True
    return bool(condition_of(dependency, ConditionType.READY).get("status") == "True")


def cycle_through(name: str, depends_on: Graph) -> tuple[str, ...]:
    """Return the shortest way from `name` along dependsOn back to it, with `name` at both ends, or nothing.

    Models that wait for a cycle, and are no part of it, have none.
    """
    came_from: dict[str, str] = {}
    following = deque([name])
    while following:
        model = following.popleft()
        for dependency in depends_on.get(model, ()):
            if dependency == name:
                return (*_way(name, model, came_from), name)
            if dependency not in came_from:
                came_from[dependency] = model
                following.append(dependency)
    return ()


def _way(start: str, end: str, came_from: Mapping[str, str]) -> list[str]:
    way = [end]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    return way[::-1]


def waiting_on(name: str, depends_on: Graph) -> set[str]:
    """Return the models that wait for `name`, directly or for one that does: a change of it concerns them."""
    waiting: set[str] = set()
    looking_at = {name}
    while looking_at:
        looking_at = {
            model
            for model, dependencies in depends_on.items()
            if model not in waiting and looking_at.intersection(dependencies)
        }
        waiting |= looking_at
    return waiting
