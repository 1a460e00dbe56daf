"""The versions of a configuration that lie elsewhere, as files of this machine: one fetch for all workers."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mcp2026.api.errors import SettingsError
from mcp2026.api.names import SOURCE_AUTHORIZATION_VARIABLE, SOURCE_HOST_VARIABLE
from mcp2026.api.serving import ServedVersion, ServingConfig
from mcp2026.api.sources import is_remote
from mcp2026.runtime.dataset.stores.locations import S3Place, Surroundings, WebPlace, parse_place
from mcp2026.runtime.fetching.cache import ModelCache
from mcp2026.runtime.fetching.errors import FetchError, cache_errors
from mcp2026.runtime.fetching.transfer import Limits, Source, Transfer
from mcp2026.runtime.settings import MIB, Settings

if TYPE_CHECKING:
    from mcp2026.runtime.fetching.web import Authorization

log = logging.getLogger(__name__)


class Fetcher:
    """Brings what configurations name, and holds what is served of it."""

    def __init__(
        self,
        settings: Settings,
        served: Callable[[], Iterable[ServingConfig]] = tuple,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Bring files into the model cache of `settings`; those of `served` stay there."""
        self._settings = settings
        self._served = served
        self._environment = environment
        folder = settings.model_cache
        limit = settings.model_cache_mib * MIB
        self._cache = None if folder is None else ModelCache(Path(folder).absolute(), limit)

    async def local(self, config: ServingConfig) -> ServingConfig:
        """Return `config` with a file of this machine for each version that lies elsewhere.

        What neither it nor what is served needs may be evicted from then on. Cancel this to end a transfer;
        what has arrived is kept.

        Raises:
            FetchError: a file cannot be had, or is not the one that is asked for.

        """
        if self._cache is not None:
            self._cache.let_go({*self._needed(config), *_digests(self._served(), self._cache.folder)})
        versions = tuple([await self._version(version) for version in config.versions])
        return msgspec.structs.replace(config, versions=versions)

    def _needed(self, config: ServingConfig) -> set[str]:
        return {str(version.sha256) for version in config.versions if is_remote(version.path)}

    async def _version(self, version: ServedVersion) -> ServedVersion:
        if not is_remote(version.path):
            return version
        setting = f"the path of version {version.version_id!r}"
        surroundings = Surroundings(Path(), {}, self._settings.allow_http)
        try:
            place = parse_place(setting, version.path, surroundings)
        except SettingsError as error:
            raise FetchError("a version", str(error), "Correct its path") from error
        assert isinstance(place, S3Place | WebPlace)
        if version.sha256 is None:
            raise FetchError(place.shown, "it has no sha256", "Say the digest of the file beside its path")
        if self._cache is None:
            raise FetchError(place.shown, "there is no folder for it", "Give one: --model-cache DIR")
        file = await self._fetched(self._cache, place, version.sha256)
        return msgspec.structs.replace(version, path=str(file))

    async def _fetched(self, cache: ModelCache, place: S3Place | WebPlace, digest: str) -> Path:
        shown = place.shown
        checked = digest in _digests(self._served(), cache.folder)
        while True:
            claim = await cache.claim(digest, shown)
            if claim is None:
                if checked or await cache.whole(digest, shown):
                    return cache.file(digest)
                continue
            try:
                source = self._source(place)
                log.info("fetching %s into %s", shown, cache.folder)
                transfer = Transfer(
                    source,
                    cache.part(digest),
                    cache.state(digest),
                    Limits(self._settings.fetch_stall_seconds, self._settings.fetch_seconds),
                    lambda more: cache.make_room(digest, more, shown),
                )
                await transfer.run(digest)
                with cache_errors(shown, cache.folder):
                    await claim.publish()
                log.info("fetched %s", shown)
                checked = True  # as it arrived; to find a disk faulty again and again would fetch for ever
            finally:
                claim.release()

    def _source(self, place: S3Place | WebPlace) -> Source:
        # Imported here: a server whose files all lie here needs none of it.
        stall, allow_http = self._settings.fetch_stall_seconds, self._settings.allow_http
        if isinstance(place, S3Place):
            from mcp2026.runtime.fetching.s3 import S3Source

            return S3Source(place, stall, allow_http=allow_http)
        from mcp2026.runtime.fetching.web import WebSource

        return WebSource(place, stall, allow_http=allow_http, authorization=self._authorization(place.shown))

    def _authorization(self, shown: str) -> "Authorization | None":
        from mcp2026.runtime.fetching.web import Authorization

        value = self._environment.get(SOURCE_AUTHORIZATION_VARIABLE)
        if not value:
            return None
        host = self._environment.get(SOURCE_HOST_VARIABLE)
        if not host:
            raise FetchError(
                shown,
                f"{SOURCE_AUTHORIZATION_VARIABLE} is set without {SOURCE_HOST_VARIABLE}",
                "Name the host that it is for: it is told to no other",
            )
        return Authorization(host, value)


def _digests(configs: Iterable[ServingConfig], folder: Path) -> set[str]:
    """Return the digests of what is served from the cache."""
    paths = [Path(version.path) for config in configs for version in config.versions]
    return {path.name for path in paths if path.parent == folder}
