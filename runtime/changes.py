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


Change = LoadModel | UnloadModel | RegisterRegion | UnregisterRegion

Changed = Callable[[RequestError | None], None]
"""Told once, on the event loop, when every process has made the change, or why none has."""

RequestChange = Callable[[Change, Changed], None]
