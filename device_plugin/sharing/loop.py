"""Keeps `Snapshot.sharing` right, and brings the GPUs to how they shall be shared."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from mcp2026.api.gpu_sharing import Sharing
from mcp2026.device_plugin.adapters.mps_daemons import MpsDaemons
from mcp2026.device_plugin.background import blocking_call
from mcp2026.device_plugin.devices import CurrentSharing, Snapshot
from mcp2026.device_plugin.errors import KubeletError, NvmlError
from mcp2026.device_plugin.health.probing import HealthProbe
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.sharing.doing import Sight, do_steps, look_at_gpus
from mcp2026.device_plugin.sharing.observation import KubeletView, Observation
from mcp2026.device_plugin.sharing.transitions import Decision, SharingTransitions

log = logging.getLogger(__name__)

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
"""Between two decisions while a GPU is not as wanted; it doubles while nothing changes. The longest is also
how often daemons are asked whether they serve."""
REREAD_S = 30.0
"""How often the driver is read while all GPUs are as wanted: somebody may change them by hand."""


class SharingLoop:
    """One loop around `SharingTransitions`. `ask_kubelet` returns a fresh view, or raises `KubeletError`."""

    def __init__(
        self,
        inventory: Inventory,
        probe: HealthProbe,
        daemons: MpsDaemons,
        ask_kubelet: Callable[[], Awaitable[KubeletView]],
        node_name: str,
    ) -> None:
        self._inventory = inventory
        self._probe = probe
        self._daemons = daemons
        self._ask_kubelet = ask_kubelet
        self._node_name = node_name
        self._transitions = SharingTransitions()
        self._decision = Decision({})
        self._wanted: dict[str, Sharing] = {}
        self._sight: Sight | None = None
        self._seen_at = 0.0
        self._machine = inventory.snapshot.machine
        self._unreadable: Mapping[str, str] = {}

    async def run(self) -> None:
        """Decide, do and look again until cancelled."""
        pause_s = SHORTEST_PAUSE_S
        while True:
            before = self._inventory.snapshot
            changed = await self._tick()
            pause_s = SHORTEST_PAUSE_S if changed else min(2 * pause_s, LONGEST_PAUSE_S)
            if not self._decision.steps:
                await self._wait(before, pause_s)

    def why_not_ready(self) -> str:
        """Return which GPUs cannot be looked after, and why; empty when all can."""
        return "; ".join(self._unreadable.values())

    async def _wait(self, before: Snapshot, pause_s: float) -> None:
        settled = self._decision.settled and bool(self._decision.sharing)
        mps = any(current.sharing.mode == "MPS" for current in self._decision.sharing.values())
        limit_s = REREAD_S if settled and not mps else LONGEST_PAUSE_S if settled else pause_s
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                now = self._inventory.snapshot
                while (
                    now.wanted == before.wanted
                    and now.holdings == before.holdings
                    and now.machine is before.machine
                ):
                    now = await self._inventory.next_after(now)

    async def _tick(self) -> bool:
        """Decide once and do what was decided; tell whether anything was done or is another way now."""
        snapshot = self._inventory.snapshot
        if not snapshot.wanted:
            return False
        if snapshot.machine is not self._machine:  # it was read anew, after a reset perhaps
            self._machine, self._sight = snapshot.machine, None
        wanted = {gpu.uuid: snapshot.wanted_of(gpu.uuid) for gpu in snapshot.machine.gpus}
        seen = await self._observe(wanted)
        self._tell_unreadable(seen.unreadable)
        decision = self._transitions.decide(seen, time.monotonic())
        changed = decision != self._decision or wanted != self._wanted
        _report(self._decision, decision)
        self._decision, self._wanted = decision, wanted
        self._publish(decision)
        if decision.steps:
            self._sight = None
            done = await blocking_call(partial(do_steps, decision.steps, self._probe.ask, self._daemons))
            for step, failure in done:
                if failure:
                    log.error(
                        "a GPU could not be changed: %s: %s", step.uuid, failure, extra={"gpu": step.uuid}
                    )
                    self._transitions.failed(step, failure, time.monotonic())
                else:
                    self._transitions.succeeded(step)
        return changed

    async def _observe(self, wanted: dict[str, Sharing]) -> Observation:
        settled = self._decision.settled and wanted == self._wanted
        view, failure = self._known_view(), ""
        if not settled:
            try:
                view = await self._ask_kubelet()
            except KubeletError as error:
                view, failure = None, str(error)
        daemons, unreadable = await blocking_call(self._daemons.observe)
        now = time.monotonic()
        if not settled or self._sight is None or now - self._seen_at >= REREAD_S:
            reserved = daemons.keys() | unreadable.keys()
            look = partial(look_at_gpus, node_name=self._node_name, wanted=wanted, reserved=reserved)
            try:
                self._sight = await blocking_call(partial(self._probe.ask, look))
                self._seen_at = now
            except NvmlError as error:
                log.debug("the driver does not tell how the GPUs are set up: %s", error)
                self._sight = None
        facts = {} if self._sight is None else self._sight.facts
        return Observation(wanted, facts, daemons, view, failure, unreadable)

    def _tell_unreadable(self, unreadable: Mapping[str, str]) -> None:
        for uuid, reason in unreadable.items():
            if self._unreadable.get(uuid) != reason:
                log.error("how a GPU is shared stays as it is: %s: %s", uuid, reason, extra={"gpu": uuid})
        self._unreadable = unreadable

    def _known_view(self) -> KubeletView | None:
        """Return what is known without asking; nothing may be changed on it."""
        snapshot = self._inventory.snapshot
        if not snapshot.holdings_known:
            return None
        return KubeletView(float("-inf"), {name: held.holder for name, held in snapshot.holdings.items()})

    def _publish(self, decision: Decision) -> None:
        sight = self._sight

        def change(now: Snapshot) -> Snapshot:
            instances = now.mig_instances if sight is None else sight.reading.mig_instances
            return replace(now, sharing=decision.sharing, mig_instances=instances)

        self._inventory.change(change)


def _report(before: Decision, after: Decision) -> None:
    for uuid, current in after.sharing.items():
        earlier = before.sharing.get(uuid, CurrentSharing())
        if current != earlier:
            level = logging.ERROR if current.state == "Failed" else logging.INFO
            extra = {"gpu": uuid, "mode": current.sharing.mode, "state": current.state}
            said = f": {current.message}" if current.message else ""
            log.log(
                level,
                "sharing a GPU: %s %s %s%s",
                current.state,
                current.sharing.mode,
                uuid,
                said,
                extra=extra,
            )
