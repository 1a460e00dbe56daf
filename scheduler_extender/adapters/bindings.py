"""Posts Bindings to the API server, with the reservation among their annotations."""

from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec
from kubernetes.aio import client

from mcp2026.api.gpu_assignment import GpuAssignment, format_gpu_assignment
from mcp2026.api.names import GPU_ASSIGNMENT_ANNOTATION
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
        body = await self._call("GET", f"/api/v1/namespaces/{args.namespace}/pods/{args.name}")
        pod = observe(Kind.PODS, body)
        assert isinstance(pod, ObservedPod)
        if pod.uid != args.uid:
            raise BindingRefusedError(
                f"pod {pod.key} is another one by now (UID {pod.uid} instead of {args.uid})"
            )
        return pod

    async def bind(self, args: BindingArgs, assignment: GpuAssignment) -> None:
        """Bind the pod to the node; its annotation and its node are written in one act.

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
        await self._call("POST", f"/api/v1/namespaces/{args.namespace}/pods/{args.name}/binding", binding)

    async def _call(self, verb: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        method, url, headers, content, _ = await self._api.param_serialize(
            verb,
            path,
            header_params={"Accept": "application/json", "Content-Type": "application/json"},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = await self._api.call_api(
                method, url, headers, content, _request_timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS)
            )
            response: aiohttp.ClientResponse = answer.response
            async with response:
                text = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise BindingUncertainError(
                f"the API server does not answer: {error or type(error).__name__}"
            ) from error
        if response.status < HTTPStatus.BAD_REQUEST:
            return text
        problem = f"{response.status}: {_message(text)}"
        if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise BindingUncertainError(problem)
        raise BindingRefusedError(problem)


def _message(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body, type=dict[str, object]).get("message", ""))
    except msgspec.DecodeError:
        return body[:200].decode(errors="replace")
