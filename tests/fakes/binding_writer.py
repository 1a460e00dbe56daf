"""A place where bindings are posted that keeps them, and fails as a test asks."""

import asyncio
import json
from typing import Any

from mcp2026.api.gpu_assignment import GpuAssignment, format_gpu_assignment
from mcp2026.api.names import GPU_ASSIGNMENT_ANNOTATION
from mcp2026.scheduler_extender.cluster_events import Kind, ObservedPod, Seen, observe
from mcp2026.scheduler_extender.errors import BindingRefusedError
from mcp2026.scheduler_extender.wire import BindingArgs
from tests.fakes.clusters import pod


class ApiServer:
    """Binds what it is told to, keeps what it bound, and fails as a test asks."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.bound: dict[str, GpuAssignment] = {}
        self.failure: Exception | None = None
        self.seconds = 0.0
        """Within which the last binding was to end."""

    def add(self, name: str, gpus: int) -> BindingArgs:
        self.pods[name] = pod(name, gpus)
        return BindingArgs("default", name, f"uid-{name}", "n")

    async def read_pod(self, args: BindingArgs) -> ObservedPod:
        if args.name not in self.pods:
            raise BindingRefusedError(f"404: pods {args.name!r} not found")
        found = observe(Kind.PODS, json.dumps(self.pods[args.name]).encode())
        assert isinstance(found, ObservedPod)
        return found

    async def bind(self, args: BindingArgs, assignment: GpuAssignment, seconds: float) -> None:
        self.seconds = seconds
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        self.bound[args.name] = assignment

    def as_watched(self, name: str) -> Seen:
        document = self.pods[name]
        document["spec"]["nodeName"] = "n"
        value = format_gpu_assignment(self.bound[name])
        document["metadata"]["annotations"] = {GPU_ASSIGNMENT_ANNOTATION: value}
        return Seen(observe(Kind.PODS, json.dumps(document).encode()))
