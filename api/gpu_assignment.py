"""The reservation that joins scheduler and kubelet: the annotation `mcp2026.io/gpu-assignment` of a pod.

JSON, ``{"<container>": {"<resource>": ["<device id>", …]}}``: what each container was promised when
the pod was bound. The extender writes it; the device plugin's preferred allocation honours it; the kubelet's
pod-resources API confirms what came of it.

Shares and GiB of one GPU are all alike: how many of which GPU are named counts, not which.
"""

from collections.abc import Mapping

import msgspec

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.names import GPU_ASSIGNMENT_ANNOTATION

GpuAssignment = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Container → extended resource → device ids."""

_Document = dict[str, dict[str, tuple[str, ...]]]


def format_gpu_assignment(assignment: GpuAssignment) -> str:
    """Return the annotation's value; equal assignments have equal values."""
    return msgspec.json.encode(assignment, order="deterministic").decode()


def parse_gpu_assignment(value: str) -> GpuAssignment:
    """Return what the annotation's `value` says.

    Raises:
        InvalidResourceError: it is not JSON of that shape.

    """
    try:
        return msgspec.json.decode(value, type=_Document)
    except msgspec.DecodeError as error:
        raise InvalidResourceError(
            f"metadata.annotations[{GPU_ASSIGNMENT_ANNOTATION}]",
            f"cannot be read ({error})",
            'JSON such as {"<container>": {"mcp2026.io/gpu": ["<device id>"]}}',
        ) from error
