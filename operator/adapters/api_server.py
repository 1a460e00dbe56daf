"""Requests to the Kubernetes API server, by objects in their JSON shape. Blocking: call it from threads."""

import json
import urllib.parse
from dataclasses import dataclass
from typing import Any

import urllib3
from kubernetes import client, config

from mcp2026.api.names import (
    GROUP,
    INFERENCE_MODEL_KIND,
    INFERENCE_MODEL_PLURAL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    MODEL_LABEL,
    VERSION,
)
from mcp2026.operator.errors import (
    ApiRequestError,
    ApiServerUnreachableError,
    MissingResourceKindError,
)
from mcp2026.operator.manifests import Manifest

_TIMEOUT_SECONDS = 30
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Kind:
    """Where objects of a kind live, and which of them concern us (a label selector, on the server)."""

    kind: str
    group: str
    version: str
    plural: str
    label_selector: str = ""

    def path(self, namespace: str | None, name: str | None = None) -> str:
        """Return the path of one object, of a namespace's objects or of all."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        steps = [
            root,
            *(["namespaces", namespace] if namespace else []),
            self.plural,
            *([name] if name else []),
        ]
        return "/".join(steps)


_OURS = f"{MANAGED_BY_LABEL}={MANAGED_BY},{MODEL_LABEL}"
KINDS = {
    kind.kind: kind
    for kind in (
        Kind(INFERENCE_MODEL_KIND, GROUP, VERSION, INFERENCE_MODEL_PLURAL),
        Kind("ServiceAccount", "", "v1", "serviceaccounts", _OURS),
        Kind("Role", "rbac.authorization.k8s.io", "v1", "roles", _OURS),
        Kind("RoleBinding", "rbac.authorization.k8s.io", "v1", "rolebindings", _OURS),
        Kind("ConfigMap", "", "v1", "configmaps", _OURS),
        Kind("Service", "", "v1", "services", _OURS),
        Kind("Deployment", "apps", "v1", "deployments", _OURS),
        Kind("Job", "batch", "v1", "jobs", _OURS),
        Kind("Pod", "", "v1", "pods", _OURS),
        Kind("Lease", "coordination.k8s.io", "v1", "leases", MODEL_LABEL),
    )
}


class ApiServer:
    """One API server, with the credentials of the pod or of the kubeconfig file."""

    def __init__(self, api_client: client.ApiClient) -> None:
        self._client = api_client

    @classmethod
    def discover(cls, connections: int) -> "ApiServer":
        """Connect as the pod's service account; outside a pod as $KUBECONFIG or ~/.kube/config says.

        Raises:
            ApiServerUnreachableError: neither is there.

        """
        configuration = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # untyped
        except config.ConfigException:
            try:
                config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # untyped
            except Exception as error:  # a file of another shape makes the client stumble anyhow
                raise ApiServerUnreachableError(
                    f"neither a service account of a pod nor a usable kubeconfig file is there: {error}"
                ) from error
        configuration.connection_pool_maxsize = connections
        return cls(client.ApiClient(configuration))

    def check(self) -> None:
        """Make sure that the API server answers and knows our kinds.

        Raises:
            ApiServerUnreachableError: it does not answer.
            MissingResourceKindError: the CustomResourceDefinition is not installed.

        """
        definition = f"{INFERENCE_MODEL_PLURAL}.{GROUP}"
        try:
            known = self._request("GET", f"/apis/{GROUP}/{VERSION}")
        except ApiRequestError as error:
            if error.status == 404:
                raise MissingResourceKindError(definition) from error
            raise
        if INFERENCE_MODEL_PLURAL not in {entry["name"] for entry in known.get("resources", [])}:
            raise MissingResourceKindError(definition)

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return an object, or None if there is none."""
        try:
            return self._request("GET", KINDS[kind].path(namespace, name))
        except ApiRequestError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: str, namespace: str | None) -> tuple[list[Manifest], str]:
        """Return the objects of a kind that concern us, page by page, and the list's resourceVersion."""
        found: list[Manifest] = []
        query = {"limit": str(_PAGE), "labelSelector": KINDS[kind].label_selector}
        while True:
            page = self._request("GET", KINDS[kind].path(namespace), query)
            found += page["items"]
            rest = page["metadata"].get("continue")
            if not rest:
                return found, page["metadata"]["resourceVersion"]
            query["continue"] = rest

    def apply(self, manifest: Manifest) -> Manifest:
        """Apply a manifest on the server; its fields become ours, whoever had them."""
        metadata = manifest["metadata"]
        return self._request(
            "PATCH",
            KINDS[manifest["kind"]].path(metadata["namespace"], metadata["name"]),
            {"fieldManager": MANAGED_BY, "force": "true"},
            manifest,
            "application/apply-patch+yaml",
        )

    def annotate_pod(self, pod: Manifest, annotation: str, value: str | None) -> Manifest | None:
        """Set or take away an annotation of this very pod; None if it is gone."""
        metadata = pod["metadata"]
        body = {"metadata": {"uid": metadata["uid"], "annotations": {annotation: value}}}
        path = KINDS["Pod"].path(metadata["namespace"], metadata["name"])
        try:
            return self._request(
                "PATCH", path, {"fieldManager": MANAGED_BY}, body, "application/merge-patch+json"
            )
        except ApiRequestError as error:
            if error.status == 404:
                return None
            raise

    def patch_status(self, resource: Manifest, status: dict[str, Any]) -> Manifest:
        """Write a model's status; refused with 409 if the model has changed since `resource` was read."""
        metadata = resource["metadata"]
        path = KINDS[INFERENCE_MODEL_KIND].path(metadata["namespace"], metadata["name"])
        body = {
            "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
            "status": status,
        }
        return self._request(
            "PATCH", f"{path}/status", {"fieldManager": MANAGED_BY}, body, "application/merge-patch+json"
        )

    def create_event(self, event: Manifest) -> None:
        """Create a Kubernetes Event."""
        self._request("POST", f"/api/v1/namespaces/{event['metadata']['namespace']}/events", {}, event)

    def _request(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Manifest:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        path_and_query = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        verb, url, sent, payload, _ = self._client.param_serialize(
            method, path_and_query, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        try:
            response = self._client.call_api(verb, url, sent, payload, _request_timeout=_TIMEOUT_SECONDS)
            text = response.read() or b"{}"  # type: ignore[no-untyped-call]  # untyped
        except urllib3.exceptions.HTTPError as error:
            raise ApiServerUnreachableError(f"{self._client.configuration.host}: {error}") from error
        if not 200 <= response.status < 300:
            raise ApiRequestError(method, path, response.status, _message(text))
        document: Manifest = json.loads(text)
        return document


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text).get("message", ""))
    except (ValueError, AttributeError):
        return text[:200].decode(errors="replace")
