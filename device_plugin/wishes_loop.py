"""Brings what is wanted of the GPUs into the inventory, whenever configuration, spec or machine change."""

import asyncio
import logging
from collections.abc import Coroutine

from mcp2026.api.configuration_file import ConfigurationFile
from mcp2026.api.folder_watch import FolderWatch
from mcp2026.device_plugin.configuration import Configuration
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.wishes import SeenSpec, Wishes

log = logging.getLogger(__name__)

SPEC_PATIENCE_S = 5.0
"""How long the first spec is waited for before the configuration alone holds."""
FILE_LOOK_S = 10.0
"""How often the configuration file is looked at although its folder tells of changes: one behind a link into
another folder changes in silence."""
FILE_SETTLING_S = 0.1
"""What changes within this time after a change is read along with it."""


class WishesLoop:
    """Around one `Wishes`."""

    def __init__(
        self,
        wishes: Wishes,
        inventory: Inventory,
        configuration_file: ConfigurationFile[Configuration] | None,
    ) -> None:
        self._wishes = wishes
        self._inventory = inventory
        self._file = configuration_file
        self._told: tuple[str, ...] = ()
        self._strangers: tuple[str, ...] = ()
        self._elsewhere: tuple[str, ...] = ()

    def begin(self) -> None:
        """Wait for no spec."""
        self._wishes.begin()

    def spec_seen(self, seen: SeenSpec) -> None:
        """Take the spec that the API server has."""
        self._wishes.spec_seen(seen)
        self._apply()

    async def run(self) -> None:
        """Keep the inventory's wishes right until cancelled."""
        loops: list[Coroutine[None, None, None]] = [self._follow_machine(), self._lose_patience()]
        if self._file is not None:
            loops.append(self._follow_file(self._file))
        async with asyncio.TaskGroup() as group:
            for loop in loops:
                group.create_task(loop)

    async def _follow_file(self, file: ConfigurationFile[Configuration]) -> None:
        folder = FolderWatch(file.path.parent)

        async def pause(usual_s: float) -> None:
            if await folder.wait(FILE_LOOK_S, unwatched_s=usual_s):
                await asyncio.sleep(FILE_SETTLING_S)

        try:
            await file.follow(self._configuration_read, self._configuration_refused, pause=pause)
        finally:
            folder.close()

    async def _follow_machine(self) -> None:
        while True:
            self._apply()
            machine = self._inventory.snapshot.machine
            while self._inventory.snapshot.machine is machine:
                await self._inventory.next_after(self._inventory.snapshot)

    async def _lose_patience(self) -> None:
        await asyncio.sleep(SPEC_PATIENCE_S)
        if not self._wishes.begun:
            log.warning("the spec of the node's GPUTopology cannot be read: the configuration holds so far")
            self._wishes.begin()
            self._apply()

    def _configuration_read(self, configuration: Configuration) -> None:
        self._wishes.configuration_read(configuration)
        self._apply()

    def _configuration_refused(self, problem: str) -> None:
        self._wishes.configuration_refused(problem)
        self._apply()

    def _apply(self) -> None:
        self._inventory.change(self._wishes.apply)
        refusals = tuple(refusal.message for refusal in self._inventory.snapshot.refusals)
        for refusal in refusals:
            if refusal not in self._told:
                log.error("refused, what held before holds on: %s", refusal)
        self._told = refusals
        strangers = self._wishes.without_a_gpu(self._inventory.snapshot)
        if strangers and strangers != self._strangers:
            log.warning(
                "the configuration is for GPUs that this node does not have: %s", "; ".join(strangers)
            )
        self._strangers = strangers
        elsewhere = self._wishes.for_other_nodes(self._inventory.snapshot)
        if elsewhere and elsewhere != self._elsewhere:
            log.info(
                "the configuration for all nodes names GPUs that this node does not have: %s; where no node "
                "has them, correct it",
                "; ".join(elsewhere),
            )
        self._elsewhere = elsewhere
