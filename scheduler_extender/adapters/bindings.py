"""Posts Bindings to the API server, with the reservation among their annotations."""

from http import HTTPStatus
from typing import Any

from kubernetes.aio import client

from mcp2026.api.gpu_assignment import GpuAssignment, format_gpu_assignment
from mcp2026.api.names import GPU_ASSIGNMENT_ANNOTATION
from mcp2026.scheduler_extender.adapters.api_requests import NoAnswerError, ask, message_of
from mcp2026.scheduler_extender.cluster_events import Kind, ObservedPod, observe
from mcp2026.scheduler_extender.errors import BindingRefusedError, BindingUncertainError
from mcp2026.scheduler_extender.wire import BindingArgs

REQUEST_SECONDS = 10


class Bindings:
    """Reads and binds pods through `api`."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api

    async def read_pod(self, args: BindingArgs) -> ObservedPod:
        """Return the pod as the API server has it.

        Raises:
            BindingRefusedError: there is no such pod, or another one of that name.
            BindingUncertainError: the API server does not answer.

        """
        path = f"/api/v1/namespaces/{args.namespace}/pods/{args.name}"
        body = await self._call("GET", path, None, REQUEST_SECONDS)
        pod = observe(Kind.PODS, body)
        assert isinstance(pod, ObservedPod)
        if pod.uid != args.uid:
            raise BindingRefusedError(
                f"pod {pod.key} is another one by now (UID {pod.uid} instead of {args.uid})"
            )
        return pod

    async def bind(self, args: BindingArgs, assignment: GpuAssignment, seconds: float) -> None:
        """Bind the pod to the node; its annotation and its node are written in one act.

        The API server, too, gives up after `seconds`.

        Raises:
            BindingRefusedError: it is not bound.
            BindingUncertainError: nobody knows.

        """
        metadata: dict[str, Any] = {"name": args.name, "namespace": args.namespace, "uid": args.uid}
        if assignment:
            metadata["annotations"] = {GPU_ASSIGNMENT_ANNOTATION: format_gpu_assignment(assignment)}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": args.node},
        }
        seconds = min(seconds, REQUEST_SECONDS)
        path = f"/api/v1/namespaces/{args.namespace}/pods/{args.name}/binding?timeout={seconds:.3f}s"
        await self._call("POST", path, binding, seconds)

    async def _call(self, verb: str, path: str, body: dict[str, Any] | None, seconds: float) -> bytes:
        try:
            status, text = await ask(self._api, verb, path, body, seconds)
        except NoAnswerError as error:
            raise BindingUncertainError(str(error)) from error
        if status < HTTPStatus.BAD_REQUEST:
            return text
        problem = f"{status}: {message_of(text)}"
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise BindingUncertainError(problem)
        raise BindingRefusedError(problem)
