"""Binds pods to nodes and exact devices: choose, assume, post, and take back what was refused (0111).

`Binder` belongs to one event loop, with its cache. Many bindings may be under way at once.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from mcp2026.api.gpu_assignment import GpuAssignment
from mcp2026.scheduler_extender.background import Background
from mcp2026.scheduler_extender.cache import ClusterCache
from mcp2026.scheduler_extender.choosing import assignment_for
from mcp2026.scheduler_extender.cluster_events import ObservedPod
from mcp2026.scheduler_extender.errors import BindingRefusedError, NoRoomError, NotLeadingError
from mcp2026.scheduler_extender.filtering import NOT_SEEN, refusal
from mcp2026.scheduler_extender.gangs import Gangs
from mcp2026.scheduler_extender.leadership import Alone, Leadership
from mcp2026.scheduler_extender.policy import PolicyInForce
from mcp2026.scheduler_extender.preferences import Preferences
from mcp2026.scheduler_extender.score_memo import ScoreMemo
from mcp2026.scheduler_extender.snapshot import NodeGpus
from mcp2026.scheduler_extender.wire import BindingArgs

ASSUMED_SECONDS = 60.0
"""How long devices stay reserved for a pod that may be bound and that the watch never shows."""
CHOICES = 8
"""How often a choice is made again because the watch changed the node meanwhile."""


class BindingWriter(Protocol):
    """Where bindings are posted."""

    async def bind(self, args: BindingArgs, assignment: GpuAssignment, seconds: float) -> None:
        """Bind the pod to the node within `seconds` or never, and write `assignment` to it in the same act.

        Raises:
            BindingRefusedError: it is not bound.
            BindingUncertainError: nobody knows.

        """

    async def read_pod(self, args: BindingArgs) -> ObservedPod:
        """Return the pod as the API server has it.

        Raises:
            BindingRefusedError: there is no such pod, or another one of that name.
            BindingUncertainError: the API server does not answer.

        """


class Binder:
    """Chooses devices and binds. `clock` gives seconds that only grow."""

    def __init__(
        self,
        cache: ClusterCache,
        memo: ScoreMemo,
        writer: BindingWriter,
        background: Background,
        clock: Callable[[], float],
        gangs: Gangs | None = None,
        in_force: PolicyInForce | None = None,
        leadership: Leadership | None = None,
    ) -> None:
        self._cache = cache
        self._memo = memo
        self._writer = writer
        self._background = background
        self._clock = clock
        self._gangs = gangs or Gangs(cache)
        self._in_force = in_force or PolicyInForce()
        self._leadership = leadership or Alone()
        self._choosing = asyncio.Lock()
        self._under_way: dict[str, str] = {}
        """By the UID of a pod whose binding is being written: the node."""

    async def bind(self, args: BindingArgs, pod: ObservedPod | None = None) -> GpuAssignment:
        """Bind the pod; return the devices that were reserved for it, by container.

        `pod` is what is known of it; without that it is read first.

        Raises:
            NoRoomError: the node has filled up since it was said to fit.
            BindingRefusedError: the API server refused; nothing is reserved.
            BindingUncertainError: the outcome is not known; the devices stay reserved for a while.
            NotLeadingError: another extender may bind by now; nothing is reserved.

        """
        term = self._leadership.term()
        if pod is None:
            pod = await self._writer.read_pod(args)
        if problem := self.is_bound(pod):
            raise BindingRefusedError(problem)
        self._under_way[pod.uid] = args.node
        try:
            return await self._choose_and_bind(args, pod, term)
        finally:
            del self._under_way[pod.uid]

    def is_bound(self, pod: ObservedPod) -> str:
        """Say so if `pod` was seen bound, or is being bound; empty if it is free to go anywhere.

        kube-scheduler asks about such a pod where our answer did not reach it, or came too late for it. What
        was reserved must stay so: a binding that is being written may still take effect.
        """
        if node := self._under_way.get(pod.uid):
            return f"the pod is being bound to {node}: the API server has not answered yet"
        if node := self._cache.bound_at(pod):
            return f"the pod is bound to {node} already"
        return ""

    async def _choose_and_bind(self, args: BindingArgs, pod: ObservedPod, term: int) -> GpuAssignment:
        async with self._choosing:
            assumed = await self._assume(pod, args.node) if pod.gang is None else self._held(pod, args.node)
        try:
            with self._leadership.writing(term) as seconds:
                await self._writer.bind(args, assumed.assignment, seconds)
        except NotLeadingError:
            self._cache.release(assumed.key)
            raise
        except BindingRefusedError:
            self._gangs.give_back(assumed, self._clock())
            raise
        return assumed.assignment

    def _held(self, pod: ObservedPod, node: str) -> ObservedPod:
        """Assume a member of a gang in a place that is held for the gang.

        Raises:
            NoRoomError: none is: the deadline has passed, or the extender started anew.

        """
        now = self._clock()
        self._cache.expire(now)
        taken = self._gangs.take(pod, node, now + ASSUMED_SECONDS)
        if taken is None:
            raise NoRoomError(
                f"{node}: no room is held there for the pod's gang any more; it is planned anew"
            )
        return taken

    async def _assume(self, pod: ObservedPod, node: str) -> ObservedPod:
        for _ in range(CHOICES):
            before = self._room(pod, node)
            if not pod.demands or before is None:
                chosen: GpuAssignment = {}
            else:
                preferences = Preferences.of(pod, self._in_force.policy)
                chosen = await self._background.call(
                    assignment_for, before, pod.demands, self._memo, preferences
                )
            if before is self._room(pod, node):
                break
        else:
            raise NoRoomError(f"{node} changes too fast to choose its GPUs; try again")
        assumed = pod.bound_to(node, chosen)
        self._cache.assume(assumed, self._clock() + ASSUMED_SECONDS)
        return assumed

    def _room(self, pod: ObservedPod, node: str) -> NodeGpus | None:
        """Return the node's GPUs as they are now; None for a pod that needs none.

        Raises:
            NoRoomError: the pod does not fit there any more.

        """
        if not pod.demands:
            return None
        self._cache.expire(self._clock())
        known = self._cache.snapshot().nodes.get(node)
        if known is None or known.gpus is None:
            raise NoRoomError(f"{node}: {known.problem if known else NOT_SEEN}")
        refused = refusal(known.gpus, pod.demands)
        if refused is not None:
            raise NoRoomError(f"{node} {refused.reason}")
        return known.gpus
