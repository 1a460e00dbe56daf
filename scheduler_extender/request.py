"""How many GPUs does a pod ask for?

The same arithmetic as kube-scheduler's: containers and sidecars run together, so they add up; an init
container runs alone beside the sidecars started before it, so the greatest such moment counts.
"""

from mcp2026.api.names import GPU_RESOURCE
from mcp2026.api.quantities import parse_quantity
from mcp2026.scheduler_extender.errors import InvalidQuantityError
from mcp2026.scheduler_extender.kube_objects import Container, PodSpec, Quantity


def gpus_asked(spec: PodSpec, resource: str = GPU_RESOURCE) -> int:
    """Return how many units of `resource` the pod holds at its greatest moment.

    Raises:
        InvalidQuantityError: an amount is not a whole number of devices.

    """
    sidecars = 0
    greatest_start = 0
    for container in spec.init_containers or ():
        asked = _asked_by(container, resource)
        if container.restart_policy == "Always":
            sidecars += asked
            greatest_start = max(greatest_start, sidecars)
        else:
            greatest_start = max(greatest_start, sidecars + asked)
    running = sidecars + sum(_asked_by(container, resource) for container in spec.containers or ())
    return max(running, greatest_start)


def _asked_by(container: Container, resource: str) -> int:
    """Return the request, or the limit where no request is given, as the API server defaults it."""
    resources = container.resources
    if resources is None:
        return 0
    for amounts in (resources.requests, resources.limits):
        if amounts is not None and resource in amounts:
            return device_count(resource, amounts[resource])
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
