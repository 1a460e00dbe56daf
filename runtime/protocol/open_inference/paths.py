"""Paths of the protocol: what they ask for, and of which model, version or region.

A path is read once; the same path is found in a table from then on.
"""

from enum import Enum, auto
from typing import NamedTuple
from urllib.parse import unquote

ROOT = "/v2"


class Resource(Enum):
    """What a path stands for."""

    SERVER = auto()
    LIVE = auto()
    READY = auto()
    MODEL = auto()
    MODEL_READY = auto()
    CONFIG = auto()
    STATISTICS = auto()
    ALL_STATISTICS = auto()
    INFER = auto()
    INDEX = auto()
    LOAD = auto()
    UNLOAD = auto()
    SYSTEM_STATUS = auto()
    SYSTEM_REGISTER = auto()
    SYSTEM_UNREGISTER = auto()
    CUDA_STATUS = auto()
    CUDA_REGISTER = auto()
    CUDA_UNREGISTER = auto()
    TRACE = auto()
    LOGGING = auto()


class Target(NamedTuple):
    """What a path asks for."""

    resource: Resource
    name: str | None = None
    """Of a model or a shared memory region."""
    version: str | None = None


_FIXED = {
    (): Resource.SERVER,
    ("health", "live"): Resource.LIVE,
    ("health", "ready"): Resource.READY,
    ("models", "stats"): Resource.ALL_STATISTICS,
    ("repository", "index"): Resource.INDEX,
    ("trace", "setting"): Resource.TRACE,
    ("logging",): Resource.LOGGING,
}
_OF_MODEL = {
    (): Resource.MODEL,
    ("ready",): Resource.MODEL_READY,
    ("config",): Resource.CONFIG,
    ("stats",): Resource.STATISTICS,
    ("infer",): Resource.INFER,
    ("trace", "setting"): Resource.TRACE,
}
_OF_REPOSITORY = {"load": Resource.LOAD, "unload": Resource.UNLOAD}
_OF_MEMORY = {
    ("systemsharedmemory", "status"): Resource.SYSTEM_STATUS,
    ("systemsharedmemory", "register"): Resource.SYSTEM_REGISTER,
    ("systemsharedmemory", "unregister"): Resource.SYSTEM_UNREGISTER,
    ("cudasharedmemory", "status"): Resource.CUDA_STATUS,
    ("cudasharedmemory", "register"): Resource.CUDA_REGISTER,
    ("cudasharedmemory", "unregister"): Resource.CUDA_UNREGISTER,
}
_LONGEST = 1_024
"""Longer paths are read anew each time, so that no client fills the memory with them."""
_NAMED_ONLY = (Resource.SYSTEM_REGISTER, Resource.CUDA_REGISTER)


def _all_paths() -> tuple[str, ...]:
    model = "models/<model>[/versions/<version>]"
    paths = [
        *_FIXED,
        *[(model, *rest) for rest in _OF_MODEL],
        *[("repository/models/<model>", action) for action in _OF_REPOSITORY],
        *[(memory, "region/<region>", action) for memory, action in _OF_MEMORY],
        *[path for path, resource in _OF_MEMORY.items() if resource not in _NAMED_ONLY],
    ]
    return tuple(["/".join((ROOT, *path)) for path in paths])


PATHS = _all_paths()
"""Every path that is served, for people; what stands in brackets may be left out."""


class PathTable:
    """Finds the target of a path, quickly if it was asked before."""

    def __init__(self, most: int = 4_096) -> None:
        """Remember up to `most` paths, so that a client that asks for ever new ones costs no memory."""
        self._most = most
        self._known: dict[str, Target | None] = {}

    def find(self, path: str) -> Target | None:
        """Return what `path` asks for, None if nothing is there. Names may be percent-encoded."""
        try:
            return self._known[path]
        except KeyError:
            pass
        target = read_path(path)
        if len(path) <= _LONGEST:
            if len(self._known) >= self._most:
                self._known.clear()
            self._known[path] = target
        return target


def read_path(path: str) -> Target | None:
    """Return what `path`, as it was sent, asks for; None if nothing is there."""
    first, *parts = path.removeprefix("/").split("/")
    if first != "v2":
        return None
    fixed = _FIXED.get(tuple(parts))
    if fixed is not None:
        return Target(fixed)
    match parts:
        case ["models", name, "versions", version, *rest] if name and version:
            resource = _OF_MODEL.get(tuple(rest))
            return None if resource is None else Target(resource, _decoded(name), _decoded(version))
        case ["models", name, *rest] if name:
            resource = _OF_MODEL.get(tuple(rest))
            return None if resource is None else Target(resource, _decoded(name))
        case ["repository", "models", name, action] if name and action in _OF_REPOSITORY:
            return Target(_OF_REPOSITORY[action], _decoded(name))
        case [memory, "region", name, action] if name and (memory, action) in _OF_MEMORY:
            return Target(_OF_MEMORY[memory, action], _decoded(name))
        case [memory, action] if (memory, action) in _OF_MEMORY:
            resource = _OF_MEMORY[memory, action]
            return None if resource in _NAMED_ONLY else Target(resource)
    return None


def _decoded(segment: str) -> str:
    if "%" not in segment and segment.isascii():
        return segment
    # The path was decoded byte by byte; what was sent is UTF-8, percent-encoded or not.
    return unquote(segment.encode("latin-1"), errors="replace")
