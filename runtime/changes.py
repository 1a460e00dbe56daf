"""Changes that clients ask for and that every process of a server has to make, or none."""

from collections.abc import Callable

import msgspec

from mcp2026.runtime.errors import RequestError


class LoadModel(msgspec.Struct, frozen=True, tag="load_model"):
    """Load a model of the repository, or load it again as it is now."""

    model: str


class UnloadModel(msgspec.Struct, frozen=True, tag="unload_model"):
    """Stop serving a model; what was admitted is answered."""

    model: str


class RegisterRegion(msgspec.Struct, frozen=True, tag="register_region"):
    """Make a client's POSIX shared memory known under a name."""

    name: str
    key: str
    offset: int
    byte_size: int


class UnregisterRegion(msgspec.Struct, frozen=True, tag="unregister_region"):
    """Forget a region, or all of them."""

    name: str | None


class RegisterVersion(msgspec.Struct, frozen=True, tag="register_version"):
    """Serve one more version of a model; the others share what its weight leaves."""

    request_id: str
    model: str
    version_id: str
    uri: str
    weight: int
    """Percent of the requests that name no version."""
    owner_email: str


class RetireVersion(msgspec.Struct, frozen=True, tag="retire_version"):
    """Serve a version no more; the others share its weight. What was admitted is answered."""

    model: str
    version_id: str


VersionChange = RegisterVersion | RetireVersion

Change = LoadModel | UnloadModel | RegisterRegion | UnregisterRegion

Changed = Callable[[RequestError | None], None]
"""Told once, on the event loop, when every process has made the change, or why none has."""

RequestChange = Callable[[Change, Changed], None]

VersionsChanged = Callable[[RequestError | int], None]
"""Told once, on the event loop, the revision that every process serves now, or why none does."""

RequestVersionChange = Callable[[VersionChange, VersionsChanged], None]
