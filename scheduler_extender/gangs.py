"""Admits gangs: room is held for all members that are still missing, or for none (0116).

`Gangs` keeps no clock and does no input or output. What is held stands in the cache as assumed pods, one for
each missing member, so whatever counts free GPUs counts it, and it ends with the cache's `expire`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

from mcp2026.api.gpu_assignment import GpuAssignment
from mcp2026.scheduler_extender.cache import ClusterCache, GangKey, gang_key
from mcp2026.scheduler_extender.cluster_events import ObservedPod
from mcp2026.scheduler_extender.filtering import Filtered
from mcp2026.scheduler_extender.gang_planning import Place, Planned
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.snapshot import ClusterSnapshot

HELD_PRIORITY = 2**31 - 1
"""Above every pod's: what is held is no pod that kube-scheduler could evict."""
REFUSALS_KEPT = 16
"""Each keeps the names of the nodes that it is about, some 300 kB of 5,000 nodes."""
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


_Question = tuple[GangKey, tuple[str, ...], tuple[Demand, ...], int]


def _question(planning: Planning) -> _Question:
    return gang_key(planning.pod), planning.node_names, planning.pod.demands, planning.missing


class Gangs:
    """What is held for the gangs of one cluster, over its cache."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._ends: dict[tuple[str, str], float] = {}
        """When what is held for a gang ends, on the caller's clock."""
        self._sent: dict[str, str] = {}
        """By the key of what is held: the UID of the member that was sent there, and may not be bound yet."""
        self._numbers = count()
        self._refused_on: ClusterSnapshot | None = None
        self._refused: dict[_Question, Planned] = {}
        """Plans that failed on that snapshot: members that wait all ask the same."""

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
        planning = Planning(pod, node_names, missing, len(others), self._cache.snapshot())
        known = self._known_refusal(planning)
        return planning if known is None else self.finish(planning, known, now)

    def hold(self, planning: Planning, places: tuple[Place, ...], until: float) -> bool:
        """Hold some of the places that were planned; False: nothing is held any more.

        Where one of their nodes has changed since, all that is held for the gang is let go.
        """
        pod, nodes = planning.pod, planning.snapshot.nodes
        if any(self._cache.node(name) is not nodes.get(name) for name in {at.node for at in places}):
            self._let_go(pod)
            return False
        self._ends[gang_key(pod)] = until
        for place in places:
            self._hold(pod, place.node, place.assignment)
        return True

    def finish(self, planning: Planning, planned: Planned, now: float) -> Verdict:
        """Answer the member for which it was planned, once all that was planned is held."""
        pod, names = planning.pod, planning.node_names
        if not planned.places:
            self._refuse_alike(planning, planned)
            return _refused(names, self._too_little_room(planning, planned, now))
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
        """Take note that the pod `key`, if it was assumed to be bound, is not.

        Whatever has passed its deadline is let go too, before this pod is answered.
        """
        self._cache.expire(now)
        assumed = self._cache.assumed(key)
        if assumed is not None:
            self.give_back(assumed, now)

    def give_back(self, taken: ObservedPod, now: float) -> None:
        """Hold the place of `taken`, which was not bound, until the gang's deadline."""
        self._cache.release(taken.key)
        if taken.gang is None or self._ends.get(gang_key(taken), now) <= now:
            return
        self._hold(taken, taken.node, taken.assignment)

    def _hold(self, pod: ObservedPod, node: str, assignment: GpuAssignment) -> None:
        key = _held_key(pod, next(self._numbers))
        place = replace(
            pod.bound_to(node, assignment),
            name=key.removeprefix(f"{pod.namespace}/"),
            uid=f"held:{key}",
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

        That to which it was sent before, else one to which nobody was, else that to which somebody was sent
        longest ago: a member that was deleted before it was bound.
        """
        offered = [each for each in held if each.node in node_names]
        mine = [each for each in offered if self._sent.get(each.key) == pod.uid]
        nobodys = [each for each in offered if each.key not in self._sent]
        latest_last = [*self._sent]
        place = next(iter(mine or nobodys), None) or min(
            offered, key=lambda each: latest_last.index(each.key)
        )
        self._sent.pop(place.key, None)
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

    def _known_refusal(self, planning: Planning) -> Planned | None:
        """Return the plan that failed for another member, if nothing has changed since."""
        if planning.snapshot is not self._refused_on:
            return None
        return self._refused.get(_question(planning))

    def _refuse_alike(self, planning: Planning, planned: Planned) -> None:
        """Keep a plan that failed for the other members, until something changes."""
        if planning.snapshot is not self._refused_on:
            self._refused_on = planning.snapshot
            self._refused.clear()
        if len(self._refused) == REFUSALS_KEPT:
            del self._refused[next(iter(self._refused))]
        self._refused[_question(planning)] = planned

    def _too_little_room(self, planning: Planning, planned: Planned, now: float) -> str:
        pod = planning.pod
        name = pod.gang.name if pod.gang is not None else ""
        before = f"{planning.bound} are bound, " if planning.bound else ""
        more = " more" if planning.bound else ""
        said = (
            f"gang {name}: {before}{planned.found} of {planning.missing}{more} pods of "
            f"{_asked(pod.demands)} would fit"
        )
        if planned.most < planning.missing and not planning.bound:
            return f"{said}; at most {planned.most} if every other pod went"
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
    plan: Callable[[Planning], Planned],
    now: float,
    deadline_s: float,
) -> Verdict:
    """Answer a member's filter where nothing happens between planning and holding."""
    answer = gangs.begin(pod, node_names, now)
    while isinstance(answer, Planning):
        planned = plan(answer)
        held = all(gangs.hold(answer, places, now + deadline_s) for places in planned.portions())
        answer = gangs.finish(answer, planned, now) if held else gangs.begin(pod, node_names, now)
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
