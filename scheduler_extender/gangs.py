"""Admits gangs: room is held for all members that are still missing, or for none (0116).

`Gangs` keeps no clock and does no input or output. What is held stands in the cache as assumed pods, one for
each missing member, so whatever counts free GPUs counts it, and it ends with the cache's `expire`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from mcp2026.api.gpu_assignment import GpuAssignment
from mcp2026.scheduler_extender.cache import ClusterCache, gang_key
from mcp2026.scheduler_extender.cluster_events import ObservedPod
from mcp2026.scheduler_extender.filtering import Filtered
from mcp2026.scheduler_extender.gang_planning import Place, most_members
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot

HELD_PRIORITY = 2**31 - 1
"""Above every pod's: what is held is no pod that kube-scheduler could evict."""
_MARK = "#"
"""In the name of what is held; no pod's name has it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a member, and in words what is held for its gang or what is missing."""

    filtered: Filtered
    said: str


@dataclass(frozen=True, slots=True)
class Planning:
    """Nothing is held: `missing` members are to be planned on `snapshot`, on the nodes offered."""

    pod: ObservedPod
    node_names: tuple[str, ...]
    missing: int
    bound: int
    snapshot: ClusterSnapshot


class Gangs:
    """What is held for the gangs of one cluster, over its cache."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._ends: dict[tuple[str, str], float] = {}
        """When what is held for a gang ends, on the caller's clock."""
        self._sent: dict[str, str] = {}
        """By the key of what is held: the UID of the member that was sent there, and may not be bound yet."""

    def begin(self, pod: ObservedPod, node_names: tuple[str, ...], now: float) -> Verdict | Planning:
        """Answer a member's filter, or say what is to be planned for that.

        What has passed its deadline is let go first, whosever it is.
        """
        self._cache.expire(now)
        self._ends = {key: end for key, end in self._ends.items() if end > now}
        self._sent = {key: uid for key, uid in self._sent.items() if self._cache.assumed(key) is not None}
        gang = pod.gang
        if gang is None or gang.problem:
            said = gang.problem if gang is not None else "no gang"
            return _refused(node_names, said)
        held = self._held(pod)
        others = [member for member in self._bound(pod) if member.uid != pod.uid]
        missing = gang.size - len(others)
        if missing <= 0:
            self._let_go(pod)
            return _refused(
                node_names,
                f"gang {gang.name}: all {gang.size} of its pods are bound; "
                "is mcp2026.io/gang-size too low, or this pod of another gang?",
            )
        if held and held[0].demands != pod.demands:
            return _refused(
                node_names,
                f"gang {gang.name}: this pod asks for {_asked(pod.demands)}, the others for "
                f"{_asked(held[0].demands)}; members of a gang must ask for the same, in containers of the "
                "same names",
            )
        if len(held) == missing and any(each.node in node_names for each in held):
            return self._admitted(pod, node_names, held, now)
        self._let_go(pod)
        return Planning(pod, node_names, missing, len(others), self._cache.snapshot())

    def finish(
        self, planning: Planning, places: tuple[Place, ...], now: float, deadline_s: float
    ) -> Verdict | Planning:
        """Hold `places` for `deadline_s` from `now` if there is one for each that is missing.

        Where a node has changed since, that is to be planned anew.
        """
        pod, names = planning.pod, planning.node_names
        snapshot = self._cache.snapshot()
        if any(snapshot.nodes.get(at.node) is not planning.snapshot.nodes.get(at.node) for at in places):
            return self.begin(pod, names, now)
        if len(places) < planning.missing:
            return _refused(names, self._too_little_room(planning, len(places), now))
        self._ends[gang_key(pod)] = now + deadline_s
        for number, place in enumerate(places):
            self._hold(pod, number, place.node, place.assignment)
        return self._admitted(pod, names, self._held(pod), now)

    def take(self, pod: ObservedPod, node: str, until: float) -> ObservedPod | None:
        """Assume `pod` until `until` in the place of what is held on `node` for its gang; None: nothing is.

        Between the two nobody else can take the devices. A pod that is assumed there already stays as it is.
        """
        before = next((each for each in self._cache.members(gang_key(pod)) if each.uid == pod.uid), None)
        if before is not None:
            return before if before.node == node and self._cache.assumed(pod.key) is before else None
        here = [each for each in self._held(pod) if each.node == node]
        mine = [each for each in here if self._sent.get(each.key) == pod.uid]
        place = next(iter(mine or (each for each in here if each.key not in self._sent)), None)
        if place is None or place.demands != pod.demands:
            return None
        taken = pod.bound_to(node, place.assignment)
        self._release(place)
        self._cache.assume(taken, until)
        return taken

    def asked_anew(self, key: str, now: float) -> None:
        """Take note that the pod `key`, if it was assumed to be bound, is not."""
        assumed = self._cache.assumed(key)
        if assumed is not None:
            self.give_back(assumed, now)

    def give_back(self, taken: ObservedPod, now: float) -> None:
        """Hold the place of `taken`, which was not bound, until the gang's deadline."""
        self._cache.release(taken.key)
        if taken.gang is None or self._ends.get(gang_key(taken), now) <= now:
            return
        used = {each.key for each in self._held(taken)}
        number = next(each for each in range(taken.gang.size) if _held_key(taken, each) not in used)
        self._hold(taken, number, taken.node, taken.assignment)

    def _hold(self, pod: ObservedPod, number: int, node: str, assignment: GpuAssignment) -> None:
        place = replace(
            pod.bound_to(node, assignment),
            name=_held_key(pod, number).removeprefix(f"{pod.namespace}/"),
            uid=f"held:{_held_key(pod, number)}",
            priority=HELD_PRIORITY,
        )
        self._cache.assume(place, self._ends[gang_key(pod)])

    def _held(self, pod: ObservedPod) -> tuple[ObservedPod, ...]:
        return tuple(each for each in self._cache.members(gang_key(pod)) if _is_held(each))

    def _bound(self, pod: ObservedPod) -> tuple[ObservedPod, ...]:
        return tuple(
            each for each in self._cache.members(gang_key(pod)) if not _is_held(each) and not each.leaving
        )

    def _let_go(self, pod: ObservedPod) -> None:
        for each in self._held(pod):
            self._release(each)
        self._ends.pop(gang_key(pod), None)

    def _release(self, place: ObservedPod) -> None:
        self._cache.release(place.key)
        self._sent.pop(place.key, None)

    def _send(
        self, pod: ObservedPod, node_names: tuple[str, ...], held: tuple[ObservedPod, ...]
    ) -> ObservedPod:
        """Return the place for `pod`: one alone, as kube-scheduler asks for the next before it binds this.

        That to which it was sent before, else one to which nobody was, else any.
        """
        offered = [each for each in held if each.node in node_names]
        mine = [each for each in offered if self._sent.get(each.key) == pod.uid]
        nobodys = [each for each in offered if each.key not in self._sent]
        place = (mine or nobodys or offered)[0]
        self._sent[place.key] = pod.uid
        return place

    def _admitted(
        self, pod: ObservedPod, node_names: tuple[str, ...], held: tuple[ObservedPod, ...], now: float
    ) -> Verdict:
        name = pod.gang.name if pod.gang is not None else ""
        nodes = len({each.node for each in held})
        seconds = max(0, round(self._ends[gang_key(pod)] - now))
        said = f"gang {name}: room is held for {_pods(len(held))} on {_nodes(nodes)}, for {seconds} s more"
        elsewhere = f"gang {name}: room is held for this pod on another node"
        sent_to = self._send(pod, node_names, held).node
        others = {node: elsewhere for node in node_names if node != sent_to}
        return Verdict(Filtered((sent_to,), others, {}), said)

    def _too_little_room(self, planning: Planning, found: int, now: float) -> str:
        pod, names = planning.pod, planning.node_names
        name = pod.gang.name if pod.gang is not None else ""
        before = f"{planning.bound} are bound, " if planning.bound else ""
        more = " more" if planning.bound else ""
        said = (
            f"gang {name}: {before}{found} of {planning.missing}{more} pods of "
            f"{_asked(pod.demands)} would fit"
        )
        most = most_members(planning.snapshot, names, pod.demands)
        if most < planning.missing and not planning.bound:
            return f"{said}; at most {most} if every other pod went"
        waiting = [
            end - now for gang, end in self._ends.items() if self._holds(gang) and gang != gang_key(pod)
        ]
        if waiting:
            return f"{said}; room is held for {_gangs(len(waiting))}, for {max(waiting):.0f} s at most"
        return said

    def _holds(self, gang: tuple[str, str]) -> bool:
        return any(map(_is_held, self._cache.members(gang)))


def decide(
    gangs: Gangs,
    pod: ObservedPod,
    node_names: tuple[str, ...],
    plan: Callable[[Planning], tuple[Place, ...]],
    now: float,
    deadline_s: float,
) -> Verdict:
    """Answer a member's filter where nothing happens between planning and holding."""
    answer = gangs.begin(pod, node_names, now)
    while isinstance(answer, Planning):
        answer = gangs.finish(answer, plan(answer), now, deadline_s)
    return answer


def _held_key(pod: ObservedPod, number: int) -> str:
    return f"{pod.namespace}/{pod.gang.name if pod.gang is not None else ''}{_MARK}{number}"


def _is_held(pod: ObservedPod) -> bool:
    return _MARK in pod.name


def _refused(node_names: tuple[str, ...], said: str) -> Verdict:
    return Verdict(Filtered((), {}, dict.fromkeys(node_names, said)), said)


def _asked(demands: tuple[Demand, ...]) -> str:
    return " and ".join(map(str, demands))


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _gangs(count: int) -> str:
    return "another gang" if count == 1 else f"{count} other gangs"
