"""Versions that clients register and retire: the next configuration of their model, made in all workers.

Lives in the parent, which makes one change at a time. It remembers who registered what by `request_id`, so
that a client who never saw its answer can ask again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from mcp2026.api.serving import ServedVersion, ServingConfig
from mcp2026.runtime.changes import RegisterVersion, RetireVersion, VersionChange
from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.model.registered_files import allowed_folders, registered_file
from mcp2026.runtime.model.registration import with_version, without_version
from mcp2026.runtime.settings import Settings

REMEMBERED = 1_000
"""Registrations that are remembered by their `request_id`; of more the oldest are forgotten."""

Models = Mapping[str, ServingConfig]
NextConfig = Callable[[Models], Awaitable[ServingConfig]]
"""From what is served now to the next configuration of one model; raises RequestError."""


class Rounds(Protocol):
    """What makes a change in every worker."""

    async def serve_next(self, next_config: NextConfig) -> ServingConfig:
        """Serve what `next_config` returns, in every worker or in none; raises RequestError."""


class Registrations:
    """Registers and retires versions, if clients may."""

    def __init__(self, settings: Settings, rounds: Rounds, models: Models) -> None:
        """Look into `models`, what is served now, for registrations that were made before."""
        self._settings = settings
        self._rounds = rounds
        self._models = models
        self._made: dict[str, tuple[RegisterVersion, int]] = {}
        """Change and revision by request id, oldest first."""
        self._one_at_a_time = asyncio.Lock()

    async def make(self, change: VersionChange) -> int:
        """Make `change` in every worker, and return the revision that it made.

        A registration that was made before is not made again; its revision is that of the first time.

        Raises:
            RequestError: it was made in no worker.

        """
        self._check_allowed()
        async with self._one_at_a_time:
            if isinstance(change, RetireVersion):
                return (await self._rounds.serve_next(lambda models: self._retired(change, models))).revision
            revision = self._made_before(change)
            if revision is None:
                made = await self._rounds.serve_next(lambda models: self._registered(change, models))
                revision = made.revision
                self._made[change.request_id] = change, revision
                if len(self._made) > REMEMBERED:
                    del self._made[next(iter(self._made))]
            return revision

    def _check_allowed(self) -> None:
        if self._settings.model_control != "explicit":
            raise RequestError(
                ErrorCode.PERMISSION_DENIED,
                "this server does not let its callers change what it serves",
                allowed="a server that was started with --model-control explicit",
            )

    def _made_before(self, change: RegisterVersion) -> int | None:
        first = self._made.get(change.request_id)
        if first is None:
            return None
        if first[0] != change:
            raise RequestError(
                ErrorCode.ALREADY_EXISTS,
                f"request_id {change.request_id} was used for another request",
                "request_id",
                "a UUID that was not used before, or the same request again",
            )
        config = self._models.get(change.model)
        versions = () if config is None else config.versions
        if not any((one.version_id, one.uri) == (change.version_id, change.uri) for one in versions):
            raise RequestError(
                ErrorCode.ALREADY_EXISTS,
                f"request_id {change.request_id} was used for a version that is served no more",
                "request_id",
                "a UUID that was not used before",
            )
        return first[1]

    async def _registered(self, change: RegisterVersion, models: Models) -> ServingConfig:
        config = _config_of(change.model, models)
        path = await asyncio.to_thread(self._file, change.uri, models)
        version = ServedVersion(
            change.version_id, path, change.weight, uri=change.uri, owner_email=change.owner_email
        )
        return with_version(config, version)

    def _file(self, uri: str, models: Models) -> str:
        served = (*self._settings.models, *models.values())
        return str(registered_file(uri, allowed_folders(self._settings.model_repository, served)))

    async def _retired(self, change: RetireVersion, models: Models) -> ServingConfig:
        return without_version(_config_of(change.model, models), change.version_id)


def _config_of(model: str, models: Models) -> ServingConfig:
    config = models.get(model)
    if config is None:
        raise RequestError(
            ErrorCode.NOT_FOUND,
            f"no model {model[:64]!r} is served here",
            "model",
            ", ".join(models) or "none yet",
        )
    return config
