"""What does a pod ask for: how many devices of which resource, in which containers?

The same arithmetic as kube-scheduler's: containers and sidecars run together, so they add up; an init
container runs alone beside the sidecars started before it, so the greatest such moment counts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mcp2026.api.gpu_devices import DeviceKind, kind_of_resource
from mcp2026.api.quantities import parse_quantity
from mcp2026.api.scheduling_context import QosClass, pod_qos_class
from mcp2026.scheduler_extender.errors import InvalidQuantityError
from mcp2026.scheduler_extender.kube_objects import Container, PodSpec, Quantity


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod asks for of one resource.

    `units` are those that it holds at its greatest moment; `containers` says what each container that keeps
    running asks for, sidecars first, and those that ask for nothing left out.
    """

    resource: str
    kind: DeviceKind
    units: int
    containers: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        match self.kind:
            case DeviceKind.GPU:
                return "1 GPU" if self.units == 1 else f"{self.units} GPUs"
            case DeviceKind.MEMORY:
                return f"{self.units} GiB of GPU memory"
            case DeviceKind.SHARE:
                return "1 GPU share" if self.units == 1 else f"{self.units} GPU shares"
            case DeviceKind.MIG:
                return f"{self.units} of {self.resource}"


def demands_of(spec: PodSpec) -> tuple[Demand, ...]:
    """Return what the pod asks for of each of our resources, by name; empty for a pod without GPUs.

    Raises:
        InvalidQuantityError: an amount is not a whole number of devices.

    """
    resources = sorted({name for name in _resource_names(spec) if kind_of_resource(name) is not None})
    found = (demand_of(spec, resource) for resource in resources)
    return tuple(demand for demand in found if demand.units)


def demand_of(spec: PodSpec, resource: str) -> Demand:
    """Return what the pod asks for of `resource`.

    Raises:
        InvalidQuantityError: an amount is not a whole number of devices.

    """
    sidecars: list[tuple[str, int]] = []
    greatest_start = 0
    for container in spec.init_containers or ():
        asked = _asked_by(container, resource)
        beside = sum(units for _, units in sidecars)
        greatest_start = max(greatest_start, beside + asked)
        if container.restart_policy == "Always":
            sidecars.append((container.name, asked))
    containers = [(container.name, _asked_by(container, resource)) for container in spec.containers or ()]
    running = [(name, units) for name, units in (*sidecars, *containers) if units]
    return Demand(
        resource=resource,
        kind=kind_of_resource(resource) or DeviceKind.GPU,
        units=max(greatest_start, sum(units for _, units in running)),
        containers=tuple(running),
    )


def milli_cpu_asked(spec: PodSpec) -> int:
    """Return the CPU that the pod's containers ask for together, in thousandths of a core."""
    return _sum_of(spec, "cpu", 1000)


def memory_asked(spec: PodSpec) -> int:
    """Return the memory that the pod's containers ask for together, in bytes."""
    return _sum_of(spec, "memory", 1)


def qos_of(spec: PodSpec) -> QosClass:
    """Return the QoS class that Kubernetes gives the pod."""
    return pod_qos_class(
        (_cpu_and_memory(container.resources.requests), _cpu_and_memory(container.resources.limits))
        if container.resources is not None
        else ({}, {})
        for container in (*(spec.init_containers or ()), *(spec.containers or ()))
    )


def _cpu_and_memory(amounts: Mapping[str, Quantity] | None) -> dict[str, str]:
    return {name: str(amounts[name]) for name in ("cpu", "memory") if name in amounts} if amounts else {}


def _sum_of(spec: PodSpec, resource: str, factor: int) -> int:
    amounts = (_quantity(container, resource) for container in spec.containers or ())
    return sum(int((parse_quantity(str(amount)) or 0) * factor) for amount in amounts)


def _resource_names(spec: PodSpec) -> Iterator[str]:
    for container in (*(spec.init_containers or ()), *(spec.containers or ())):
        if container.resources is not None:
            yield from container.resources.requests or ()
            yield from container.resources.limits or ()


def _asked_by(container: Container, resource: str) -> int:
    """Return the request, or the limit where no request is given, as the API server defaults it."""
    return device_count(resource, _quantity(container, resource))


def _quantity(container: Container, resource: str) -> Quantity:
    resources = container.resources
    if resources is not None:
        for amounts in (resources.requests, resources.limits):
            if amounts is not None and resource in amounts:
                return amounts[resource]
    return 0


def device_count(resource: str, quantity: Quantity) -> int:
    """Return a Kubernetes quantity of devices as a number.

    Raises:
        InvalidQuantityError: it is no quantity, negative, or not whole.

    """
    amount = parse_quantity(str(quantity))
    if amount is None or amount != amount.to_integral_value():
        raise InvalidQuantityError(resource, quantity)
    return int(amount)
