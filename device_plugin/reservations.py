"""What was reserved for which pod, for which request is that, and did the pod get it? Pure.

The kubelet asks for preferences without naming a pod, so a reservation is recognised by what it holds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mcp2026.api.gpu_assignment import GpuAssignment
from mcp2026.api.gpu_devices import DeviceKind, parse_device_id
from mcp2026.api.gpu_topology import Holder


@dataclass(frozen=True, slots=True)
class Reservation:
    """What was promised to the containers of a pod of this node when it was bound. Resources by our names.

    `created` is the pod's creation time in RFC 3339, UTC, as the API server writes it.
    """

    namespace: str
    pod: str
    uid: str
    created: str
    assignment: GpuAssignment


@dataclass(frozen=True, slots=True)
class Divergence:
    """A container holds something else than was reserved for it."""

    namespace: str
    pod: str
    uid: str
    container: str
    resource: str
    reserved: tuple[str, ...]
    held: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"container {self.container} of pod {self.namespace}/{self.pod} holds {_listed(self.held)} of "
            f"{self.resource}, reserved were {_listed(self.reserved)}"
        )


HeldDevices = Mapping[tuple[Holder, str], frozenset[str]]
"""(container, resource) → the devices that it holds."""


def open_reservations(
    reservations: Iterable[Reservation], held: HeldDevices, resource: str
) -> tuple[tuple[Reservation, str, tuple[str, ...]], ...]:
    """Return what is reserved of `resource` for containers that hold none of it yet, oldest pods first."""
    return tuple(
        (reservation, container, devices)
        for reservation in sorted(reservations, key=lambda each: (each.created, each.uid))
        for container, resources in reservation.assignment.items()
        if (devices := resources.get(resource))
        and (Holder(reservation.namespace, reservation.pod, container), resource) not in held
    )


def matching_reservation(
    waiting: Iterable[tuple[Reservation, str, tuple[str, ...]]],
    available: Iterable[str],
    must_include: Iterable[str],
    size: int,
) -> tuple[Reservation, tuple[str, ...]] | None:
    """Return the first reservation of `size` devices that are available, with `must_include` among them.

    Shares and GiB of one GPU are all alike: for those that are reserved, others of the same GPU will do.
    """
    offered, required = tuple(dict.fromkeys(available)), tuple(dict.fromkeys(must_include))
    for reservation, _, devices in waiting:
        if len(set(devices)) == len(devices) == size:
            chosen = _alike(devices, required, offered)
            if chosen is not None:
                return reservation, chosen
    return None


def _alike(
    reserved: Sequence[str], required: Sequence[str], offered: Sequence[str]
) -> tuple[str, ...] | None:
    """Return `required` and as many of `offered` as make the same parts as `reserved`; None if they cannot.

    The very devices that are reserved are taken before others of their GPU.
    """
    missing = _parts(reserved)
    chosen = []
    in_order = (*required, *(each for each in reserved if each in offered), *offered)
    for device in dict.fromkeys(in_order):
        part = _part(device)
        if missing[part] > 0:
            missing[part] -= 1
            chosen.append(device)
        elif device in required:
            return None
    return tuple(chosen) if len(chosen) == len(reserved) else None


def divergences(reservations: Iterable[Reservation], held: HeldDevices) -> tuple[Divergence, ...]:
    """Return the containers that hold something else than was reserved for them, in the order of names.

    Shares and GiB of one GPU are all alike: which of them is of no account, how many of which GPU is.
    """
    found = []
    for reservation in reservations:
        for container, resources in reservation.assignment.items():
            holder = Holder(reservation.namespace, reservation.pod, container)
            for resource, devices in resources.items():
                holds = held.get((holder, resource))
                if holds is not None and _parts(holds) != _parts(devices):
                    found.append(
                        Divergence(
                            reservation.namespace,
                            reservation.pod,
                            reservation.uid,
                            container,
                            resource,
                            tuple(sorted(devices)),
                            tuple(sorted(holds)),
                        )
                    )
    return tuple(sorted(found, key=lambda each: (each.namespace, each.pod, each.container, each.resource)))


def _parts(devices: Iterable[str]) -> Counter[tuple[str, DeviceKind]]:
    return Counter(map(_part, devices))


def _part(device: str) -> tuple[str, DeviceKind]:
    taken_apart = parse_device_id(device)
    return taken_apart.uuid, taken_apart.kind


def _listed(devices: Sequence[str]) -> str:
    parts = _parts(devices)
    return ", ".join(
        uuid if kind in (DeviceKind.GPU, DeviceKind.MIG) else f"{number} x {uuid}"
        for (uuid, kind), number in sorted(parts.items())
    )
