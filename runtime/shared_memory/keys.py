"""Which POSIX shared memory a client may name, and which part of it."""

from mcp2026.runtime.errors import invalid

INTERNAL_PREFIXES = ("mcp2026", "triton_python_backend_shm_region")
"""Regions of servers, not of clients: ours, and those of Triton's Python backend on the same machine."""

_MAX_KEY = 255
_MAX_BYTES = 2**63 - 1


def file_name(key: str) -> str:
    """Return the name under /dev/shm that `key` stands for; as in shm_open, it may begin with slashes.

    Raises:
        RequestError: the key leads elsewhere, or names a region that is not a client's.

    """
    name = key.lstrip("/")
    encoded = name.encode(errors="ignore")  # half a surrogate pair is in no name
    impossible = "/" in name or "\0" in name or name in (".", "..") or encoded.decode() != name
    if impossible or not 0 < len(encoded) <= _MAX_KEY:
        raise invalid(
            "key", f"{key[:64]!r} names no shared memory", f"a name of 1 to {_MAX_KEY} bytes without a slash"
        )
    if name.startswith(INTERNAL_PREFIXES):
        raise invalid("key", f"{key[:64]!r} belongs to a server", "a region of the client's own")
    return name


def check_range(what: str, offset: int, byte_size: int, available: int, least: int = 0) -> None:
    """Raise unless `byte_size` bytes from `offset` on lie within `available` bytes.

    Raises:
        RequestError: names the field and how much there is.

    """
    if not 0 <= offset <= _MAX_BYTES:
        raise invalid("offset", f"{offset} is out of range for {what}", f"0 to {available}")
    if not least <= byte_size <= _MAX_BYTES:
        raise invalid("byte_size", f"{byte_size} is out of range for {what}", f"{least} to {available}")
    if offset + byte_size > available:
        raise invalid(
            "byte_size",
            f"{byte_size} bytes from offset {offset} on end past {what}",
            f"at most {max(0, available - offset)} bytes from there",
        )
