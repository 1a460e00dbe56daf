"""The last seen state of all objects that matter, kept up by events and put right by full lists."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from mcp2026.api.names import INFERENCE_MODEL_KIND, MODEL_LABEL
from mcp2026.operator.children.ownership import child_name
from mcp2026.operator.dependencies import cycle_through, named_in, waiting_on
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.modes import ALL_CHILD_KINDS
from mcp2026.operator.observed import Observed, at

ModelKey = tuple[str, str]
"""Namespace and name of an InferenceModel."""

_MANY_OF_A_MODEL = ("Pod", "Lease")
"""Kinds that are found by the model's label and not by a name that follows from the model's."""


@dataclass(slots=True)
class Store:
    """Objects by kind, namespace and name."""

    _objects: dict[str, dict[ModelKey, Manifest]] = field(default_factory=dict)
    _of_model: dict[str, dict[ModelKey, dict[str, Manifest]]] = field(
        default_factory=lambda: {kind: {} for kind in _MANY_OF_A_MODEL}
    )

    def put(self, kind: str, seen: Manifest) -> set[ModelKey]:
        """Keep `seen` unless something newer is known, and return the models that it concerns."""
        key = object_key(seen)
        known = self._objects.get(kind, {}).get(key)
        if known is not None and _version(seen) < _version(known):
            return set()
        self._objects.setdefault(kind, {})[key] = seen
        if kind in self._of_model and (model := model_of(kind, seen)):
            self._of_model[kind].setdefault(model, {})[key[1]] = seen
        return self._concerned(kind, seen)

    def drop(self, kind: str, gone: Manifest) -> set[ModelKey]:
        """Forget an object that was deleted, unless one of the same name came after it."""
        key = object_key(gone)
        known = self._objects.get(kind, {}).get(key)
        if known is None or known["metadata"].get("uid") != gone["metadata"].get("uid"):
            return set()
        concerned = self._concerned(kind, known)
        del self._objects[kind][key]
        of_model, model = self._of_model.get(kind, {}), model_of(kind, known)
        if model in of_model:
            of_model[model].pop(key[1], None)
            if not of_model[model]:
                del of_model[model]
        return concerned

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
        found = {
            kind: self._objects.get(kind, {}).get((namespace, child_name(kind, name)))
            for kind in ALL_CHILD_KINDS
        }
        return Observed(
            resource=resource,
            children={kind: child for kind, child in found.items() if child is not None},
            pods=tuple(self._of_model["Pod"].get(key, {}).values()),
            leases=dict(self._of_model["Lease"].get(key, {})),
            dependencies={wanted: models.get((namespace, wanted)) for wanted in named_in(resource)},
            cycle=cycle_through(name, self._graph(namespace)) if named_in(resource) else (),
        )

    def _graph(self, namespace: str) -> dict[str, tuple[str, ...]]:
        models = self._objects.get(INFERENCE_MODEL_KIND, {})
        return {key[1]: named_in(other) for key, other in models.items() if key[0] == namespace}

    def _concerned(self, kind: str, changed: Manifest) -> set[ModelKey]:
        """Return the model that `changed` is or belongs to; for a model also those that wait for it."""
        model = model_of(kind, changed)
        if model is None:
            return set()
        if kind != INFERENCE_MODEL_KIND:
            return {model}
        namespace, name = model
        return {model, *((namespace, waiting) for waiting in waiting_on(name, self._graph(namespace)))}


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


def _version(resource: Manifest) -> int:
    return _number(resource["metadata"].get("resourceVersion", ""))


def _number(version: str) -> int:
    """Return a resourceVersion as a number: comparable by rule since Kubernetes 1.35, in fact before."""
    return int(version) if version.isdigit() else 0
