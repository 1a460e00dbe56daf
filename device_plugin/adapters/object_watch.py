"""Follows objects of one kind for as long as we live: a list, then a watch, again when it breaks."""

import asyncio
import logging
import random
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import msgspec

from mcp2026.device_plugin.adapters.cluster import Cluster
from mcp2026.device_plugin.errors import ApiServerError

log = logging.getLogger(__name__)

WATCH_S = (240, 480)
"""A watch ends by itself within this range, at random, so that those of many nodes do not end at once."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 30.0
_OF_ANOTHER_HISTORY = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.GONE, HTTPStatus.GATEWAY_TIMEOUT})
"""Told of a resource version that is no such, too old, or of a future: the server's data were restored."""

_Object = TypeVar("_Object", bound="WatchedObject")


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    annotations: dict[str, str] | None = None


class WatchedObject(msgspec.Struct):
    """What every object has; a kind of which more is read derives from it."""

    metadata: _Metadata


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


class ObjectWatch(Generic[_Object]):
    """Calls `changed` with all objects at `path` that fit the field selector `selector`, at every event.

    With `metadata_only` the server sends nothing else. Outages are waited out; the objects last seen stay.
    """

    def __init__(
        self,
        cluster: Cluster,
        path: str,
        selector: str,
        shape: type[_Object],
        changed: Callable[[tuple[_Object, ...]], None],
        metadata_only: bool = False,
    ) -> None:
        self._cluster = cluster
        self._path = path
        self._selector = selector
        self._changed = changed
        self._of_list: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_list_of(shape))
        self._of_object = msgspec.json.Decoder(shape)
        self._of_event = msgspec.json.Decoder(_Event)
        form = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"
        self._list_form = form.format("List") if metadata_only else "application/json"
        self._watch_form = form.format("") if metadata_only else "application/json"
        self._objects: dict[str, _Object] = {}
        self._version = ""
        self._problem = ""
        self._heard = False
        """Whether the last watch brought anything."""

    async def run(self) -> None:
        """Follow until cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            self._heard = False
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                if self._heard:
                    pause_s = FIRST_PAUSE_S
                    continue
            except (ApiServerError, msgspec.DecodeError) as error:
                if isinstance(error, msgspec.DecodeError) or error.status in _OF_ANOTHER_HISTORY:
                    self._version = ""
                if self._heard:
                    pause_s = FIRST_PAUSE_S
                if str(error) != self._problem:
                    self._problem = str(error)
                    log.warning("%s cannot be followed: %s", self._path, error)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def _list(self) -> None:
        answer = await self._cluster.get(
            self._path, self._list_form, fieldSelector=self._selector, resourceVersion="0"
        )
        listed = self._of_list.decode(answer)
        self._objects = {each.metadata.uid: each for each in listed.items or ()}
        self._version = listed.metadata.resource_version
        self._tell()

    async def _watch(self) -> None:
        """Follow one watch to its end."""
        async for line in self._cluster.watch(
            self._path,
            self._watch_form,
            watch="true",
            fieldSelector=self._selector,
            resourceVersion=self._version,
            allowWatchBookmarks="true",
            timeoutSeconds=str(random.randint(*WATCH_S)),
        ):
            self._take(self._of_event.decode(line))
            self._heard = True

    def _take(self, event: _Event) -> None:
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=_Status)
            raise ApiServerError(status.code, status.message)
        each = self._of_object.decode(event.object)
        self._version = each.metadata.resource_version
        if event.type == "BOOKMARK":
            return
        if event.type == "DELETED":
            self._objects.pop(each.metadata.uid, None)
        else:
            self._objects[each.metadata.uid] = each
        self._tell()

    def _tell(self) -> None:
        self._problem = ""
        self._changed(tuple(self._objects.values()))


def _list_of(shape: type[_Object]) -> type:
    """Return the shape of a list of objects of `shape`; an empty list of metadata comes as null."""
    items = list[shape] | None  # type: ignore[valid-type]  # made while running
    return msgspec.defstruct(f"{shape.__name__}List", [("metadata", _ListMetadata), ("items", items)])
