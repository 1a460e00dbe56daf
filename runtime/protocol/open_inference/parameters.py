"""What the parameters of a request, an input or an output ask for.

Parameters are how Triton's extensions travel: schedule policy, shared memory, classification, binary data.
Names that nothing here knows belong to the caller: they are taken, as Triton takes them for its backends, and
have no effect.
"""

from collections.abc import Mapping
from typing import NamedTuple

from mcp2026.runtime.errors import invalid
from mcp2026.runtime.shared_memory.regions import SharedMemoryRegions

Value = bool | int | float | str
Parameters = Mapping[str, Value]

PRIORITY_HEADER = b"x-mcp-priority"
TENANT_HEADER = b"x-mcp-tenant-id"
_MAX_TENANT = 63
_MAX_UINT64 = 2**64 - 1
_RESERVED = "triton_"
_ALLOWED_RESERVED = "triton_enable_empty_final_response"
"""Concerns decoupled models; every answer here is also the last one of its request."""


class RequestParameters(NamedTuple):
    """How a request wants to be scheduled."""

    priority: int
    """1 is served first; 0 is the model's default."""
    timeout_ns: int
    tenant: str


class RegionPart(NamedTuple):
    """A part of a region that holds a tensor, or shall. Regions of this name come and go."""

    region: str
    offset: int
    byte_size: int


def request_parameters(
    parameters: Parameters, headers: Mapping[bytes, bytes], levels: int, max_timeout_ns: int
) -> RequestParameters:
    """Return what `parameters` and the headers (or metadata) of a request ask for.

    `priority` counts from 1 to `levels`; as in Triton, any higher is the default. `timeout` is in µs, 0 asks
    for the default, and none is longer than `max_timeout_ns`.

    Raises:
        RequestError: a value is not accepted, or asks for a sequence.

    """
    priority, timeout_ns = 0, max_timeout_ns
    if parameters:
        _refuse_sequences(parameters)
        priority = whole_number(parameters, "priority")
        timeout_us = whole_number(parameters, "timeout")
        if timeout_us:
            timeout_ns = min(timeout_us * 1_000, max_timeout_ns)
    if PRIORITY_HEADER in headers and not priority:
        priority = _number_of_header(headers[PRIORITY_HEADER])
    tenant = headers.get(TENANT_HEADER, b"")
    if len(tenant) > _MAX_TENANT:
        raise invalid(TENANT_HEADER.decode(), f"has {len(tenant)} bytes", f"at most {_MAX_TENANT}")
    return RequestParameters(
        priority if priority <= levels else 0, timeout_ns, tenant.decode("latin-1") if tenant else ""
    )


def region_part(
    parameters: Parameters, regions: SharedMemoryRegions, field: str, max_bytes: int
) -> RegionPart | None:
    """Return where in shared memory a tensor is, or None if it is in the message.

    Raises:
        RequestError: the region is not registered, or the part is incomplete or larger than `max_bytes`.

    """
    name = parameters.get("shared_memory_region")
    if name is None:
        return None
    if not isinstance(name, str):
        raise invalid(f"{field}.shared_memory_region", f"{name!r} is no name", "a registered region")
    if "shared_memory_byte_size" not in parameters:
        raise invalid(f"{field}.shared_memory_byte_size", "is missing", "bytes of the tensor")
    byte_size = whole_number(parameters, "shared_memory_byte_size", field)
    if byte_size > max_bytes:
        raise invalid(f"{field}.shared_memory_byte_size", f"{byte_size} is too much", f"at most {max_bytes}")
    regions.get(name)
    return RegionPart(name, whole_number(parameters, "shared_memory_offset", field), byte_size)


def whole_number(parameters: Parameters, name: str, field: str = "parameters") -> int:
    """Return parameter `name`, a whole number from 0; 0 if it is missing.

    Raises:
        RequestError: it is anything else.

    """
    value = parameters.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_UINT64:
        raise invalid(f"{field}.{name}", f"{str(value)[:64]!r} is not accepted", "a whole number from 0")
    return value


def truth(parameters: Parameters, name: str, default: bool, field: str = "parameters") -> bool:
    """Return parameter `name`, true or false, or `default` if it is missing.

    Raises:
        RequestError: it is anything else.

    """
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise invalid(f"{field}.{name}", f"{str(value)[:64]!r} is not accepted", "true or false")
    return value


def _refuse_sequences(parameters: Parameters) -> None:
    for name, value in parameters.items():
        if name in ("sequence_id", "sequence_start", "sequence_end") and value:
            raise invalid(
                f"parameters.{name}", "sequences are not served: requests keep no state", "0, false"
            )
        if name.startswith(_RESERVED) and name != _ALLOWED_RESERVED:
            raise invalid(
                f"parameters.{name[:64]}",
                "is a reserved name",
                f"a name that does not begin with {_RESERVED}",
            )


def _number_of_header(text: bytes) -> int:
    if not (text.isdigit() and len(text) <= 9):
        shown = text[:32].decode("latin-1")
        raise invalid(PRIORITY_HEADER.decode(), f"{shown!r} is not accepted", "a whole number from 0")
    return int(text)
