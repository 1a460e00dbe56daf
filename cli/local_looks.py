"""Looks at the server processes while a canary is in progress, as the operator looks at its pods."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from mcp2026.api.names import REST_PORT
from mcp2026.operator.adapters.pod_pages import HttpPodPages
from mcp2026.operator.canary.comparison import Comparison
from mcp2026.operator.canary.looking import answers, look_at
from mcp2026.operator.canary.measurements import Measurements
from mcp2026.operator.observed import Observed
from mcp2026.operator.store import object_key


@dataclass(slots=True)
class LocalLooks:
    """The measurements of one model."""

    measurements: Measurements = field(default_factory=Measurements)

    def comparison(self, observed: Observed, ports: Mapping[str, int]) -> Comparison:
        """Return what was counted in the present step, after a look if it is time.

        `ports` says where the process that stands for a pod listens, by the pod's name.
        """
        key = object_key(observed.resource)
        look = look_at(observed)
        if look is None:
            self.measurements.forget(key)
            return Comparison()
        now = time.monotonic()
        if self.measurements.begin_look(key, look.step, now):
            urls = [url.replace(f":{REST_PORT}/", f":{ports[pod.name]}/") for pod, url in look.urls.items()]
            pages = asyncio.run(HttpPodPages().read(urls))
            self.measurements.take(key, look.step, answers(look, pages))
        return self.measurements.comparison(key, look.step, now)
