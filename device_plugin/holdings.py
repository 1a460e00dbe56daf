"""Who holds which device? What Allocate handed out, and what pod-resources tells of it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mcp2026.api.gpu_topology import Holder
from mcp2026.device_plugin.devices import Holding, Snapshot

UNCONFIRMED_S = 60.0
"""A device that pod-resources does not name this long after Allocate is free again: its pod was refused."""

IDLE_FACTOR = 6
"""How much rarer the kubelet is asked while nobody holds anything: a new holder comes by Allocate."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one container holds of a resource, as pod-resources tells."""

    resource: str
    holder: Holder
    devices: tuple[str, ...]


class Promises:
    """The devices that Allocate handed out and that pod-resources has not named yet."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def hand_out(self, snapshot: Snapshot, resource: str, devices: Iterable[str], now: float) -> Snapshot:
        """Return `snapshot` with `devices` held from now on, by whom is not told."""
        names = tuple(devices)
        self._since.update(dict.fromkeys(names, now))
        return replace(snapshot, holdings={**snapshot.holdings, **dict.fromkeys(names, Holding(resource))})

    def reconcile(self, snapshot: Snapshot, told: Iterable[Held], asked_at: float) -> Snapshot:
        """Return `snapshot` with the holdings that pod-resources told when asked at `asked_at`.

        What was handed out and is not named stays held for a while: the kubelet names it only once it has
        admitted the pod.
        """
        holdings: dict[str, Holding] = {
            device: Holding(held.resource, held.holder) for held in told for device in held.devices
        }
        for device, since in list(self._since.items()):
            told_since = device in holdings and since <= asked_at  # else it names the holder before
            if told_since or asked_at - since > UNCONFIRMED_S:
                del self._since[device]
            elif device in snapshot.holdings:
                holdings[device] = snapshot.holdings[device]
        return replace(snapshot, holdings=holdings, holdings_known=True)


def pause_before_asking(empty_s: float, interval_s: float) -> float:
    """Return how long to wait before the kubelet is asked again, if nobody has held anything for `empty_s`.

    Half of that, so that a kubelet that starts and names nobody at first is not believed for long; at least
    `interval_s`, and at most IDLE_FACTOR times that.
    """
    return min(max(interval_s, empty_s / 2), IDLE_FACTOR * interval_s)
