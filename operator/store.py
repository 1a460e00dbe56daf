"""The last seen state of all objects that matter, kept up by events and put right by full lists."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from mcp2026.api.names import INFERENCE_MODEL_KIND, MODEL_LABEL
from mcp2026.operator.children.ownership import child_name
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import Observed, at

ModelKey = tuple[str, str]
"""Namespace and name of an InferenceModel."""

CHILD_KINDS = ("ConfigMap", "Service", "Deployment")


@dataclass(slots=True)
class Store:
    """Objects by kind, namespace and name."""

    _objects: dict[str, dict[ModelKey, Manifest]] = field(default_factory=dict)
    _pods: dict[ModelKey, dict[str, Manifest]] = field(default_factory=dict)

    def put(self, kind: str, seen: Manifest) -> set[ModelKey]:
        """Keep `seen` unless something newer is known, and return the models that it concerns."""
        key = object_key(seen)
        known = self._objects.get(kind, {}).get(key)
        if known is not None and _version(seen) < _version(known):
            return set()
        self._objects.setdefault(kind, {})[key] = seen
        if kind == "Pod" and (model := model_of(kind, seen)):
            self._pods.setdefault(model, {})[key[1]] = seen
        return self._concerned(kind, seen)

    def drop(self, kind: str, gone: Manifest) -> set[ModelKey]:
        """Forget an object that was deleted, unless one of the same name came after it."""
        key = object_key(gone)
        known = self._objects.get(kind, {}).get(key)
        if known is None or known["metadata"].get("uid") != gone["metadata"].get("uid"):
            return set()
        del self._objects[kind][key]
        model = model_of(kind, known)
        if kind == "Pod" and model in self._pods:
            self._pods[model].pop(key[1], None)
            if not self._pods[model]:
                del self._pods[model]
        return self._concerned(kind, known)

    def replace(
        self, kind: str, listed: Iterable[Manifest], list_version: str, namespace: str | None
    ) -> None:
        """Hold exactly `listed`, and what was seen after the list was made (its `resourceVersion`).

        `namespace`: the list speaks of this namespace alone; None: of all.
        """
        fresh = {object_key(entry): entry for entry in listed}
        for key, known in list(self._objects.get(kind, {}).items()):
            listed_there = namespace is None or key[0] == namespace
            if listed_there and key not in fresh and _number(list_version) >= _version(known):
                self.drop(kind, known)
        for entry in fresh.values():
            self.put(kind, entry)

    def models(self) -> list[ModelKey]:
        """Return the keys of all models."""
        return list(self._objects.get(INFERENCE_MODEL_KIND, {}))

    def observed(self, key: ModelKey) -> Observed | None:
        """Return what is known of a model, or None when there is no such model."""
        models = self._objects.get(INFERENCE_MODEL_KIND, {})
        resource = models.get(key)
        if resource is None:
            return None
        namespace, name = key
        return Observed(
            resource=resource,
            config_map=self._objects.get("ConfigMap", {}).get((namespace, child_name("ConfigMap", name))),
            service=self._objects.get("Service", {}).get((namespace, child_name("Service", name))),
            deployment=self._objects.get("Deployment", {}).get((namespace, child_name("Deployment", name))),
            pods=tuple(self._pods.get(key, {}).values()),
            dependencies={wanted: models.get((namespace, wanted)) for wanted in _depends_on(resource)},
        )

    def _concerned(self, kind: str, changed: Manifest) -> set[ModelKey]:
        """Return the model that `changed` is or belongs to; for a model also those that depend on it."""
        model = model_of(kind, changed)
        if model is None:
            return set()
        if kind != INFERENCE_MODEL_KIND:
            return {model}
        namespace, name = model
        return {model} | {
            key
            for key, other in self._objects.get(INFERENCE_MODEL_KIND, {}).items()
            if key[0] == namespace and name in _depends_on(other)
        }


def object_key(resource: Manifest) -> ModelKey:
    """Return namespace and name of an object."""
    metadata = resource["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def model_of(kind: str, resource: Manifest) -> ModelKey | None:
    """Return the model that an object is, or that its label names."""
    namespace, name = object_key(resource)
    if kind == INFERENCE_MODEL_KIND:
        return namespace, name
    label = at(resource, "metadata", "labels", MODEL_LABEL)
    return (namespace, label) if isinstance(label, str) else None


def _depends_on(resource: Manifest) -> list[str]:
    wanted = at(resource, "spec", "dependsOn")
    return [name for name in wanted if isinstance(name, str)] if isinstance(wanted, list) else []


def _version(resource: Manifest) -> int:
    return _number(resource["metadata"].get("resourceVersion", ""))


def _number(version: str) -> int:
    """Return a resourceVersion as a number: comparable by rule since Kubernetes 1.35, in fact before."""
    return int(version) if version.isdigit() else 0
