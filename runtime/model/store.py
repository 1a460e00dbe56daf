"""The models of this process, by name. A change swaps one entry; a request keeps the version it was given."""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from mcp2026.runtime.errors import ErrorCode, RequestError
from mcp2026.runtime.model.loaded import LoadedVersion, ServedModel

State = Literal["READY", "LOADING", "UNAVAILABLE"]


class IndexEntry(NamedTuple):
    """One line of the repository index."""

    name: str
    version: str
    """Empty for a model of which no version is known."""
    state: State
    reason: str


class ModelStore:
    """Which models are served, and which are known but not served, with the reason."""

    def __init__(self, repository_names: Callable[[], Iterable[str]] = tuple) -> None:
        """Know of the models that `repository_names` returns besides those that are served."""
        self._repository_names = repository_names
        self._served: dict[str, ServedModel] = {}
        self._alone: ServedModel | None = None
        """The only model that is served; None if there are more, or none."""
        self._absent: dict[str, IndexEntry] = {}
        self._refused: dict[str, tuple[IndexEntry, ...]] = {}
        """What a watched repository has and what cannot be served, whether an older state is or not."""

    def put(self, model: ServedModel) -> None:
        """Serve `model` from the next request on."""
        self._served[model.name] = model
        self._alone = model if len(self._served) == 1 else None
        self._absent.pop(model.name, None)
        self._refused.pop(model.name, None)

    def remove(self, name: str, reason: str) -> ServedModel | None:
        """Stop serving a model; requests that hold a version of it go on."""
        self._absent[name] = IndexEntry(name, "", "UNAVAILABLE", reason)
        self._refused.pop(name, None)
        removed = self._served.pop(name, None)
        (self._alone,) = self._served.values() if len(self._served) == 1 else (None,)
        return removed

    def refuse(self, name: str, versions: Iterable[str], reason: str) -> None:
        """Show that the repository's state of a model is not served; what is served goes on.

        `versions` are those that are not served because of it, empty if that is not known. Without a
        `reason` it is forgotten.
        """
        if not reason:
            self._refused.pop(name, None)
            return
        listed = tuple(versions) or ("",)
        self._refused[name] = tuple(IndexEntry(name, one, "UNAVAILABLE", reason) for one in listed)

    def expect(self, names: Iterable[str]) -> None:
        """Note models that are being loaded at the start."""
        for name in names:
            self._absent[name] = IndexEntry(name, "", "LOADING", "")

    def models(self) -> tuple[ServedModel, ...]:
        """Return all models that are served."""
        return tuple(self._served.values())

    def versions(self, name: str) -> tuple[LoadedVersion, ...]:
        """Return the versions of a model that are served; none if it is not."""
        model = self._served.get(name)
        return () if model is None else tuple(model.versions.values())

    def model(self, name: str) -> ServedModel:
        """Return a model that is served.

        Raises:
            RequestError: NOT_READY if it is known but not served now, NOT_FOUND if it is not known.

        """
        model = self._served.get(name)
        if model is not None:
            return model
        absent = next(iter(self._refused.get(name, ())), self._absent.get(name))
        if absent is not None:
            reason = f": {absent.reason}" if absent.reason else ""
            raise RequestError(
                ErrorCode.NOT_READY, f"model {name[:64]!r} is {absent.state.lower()}{reason}", "model"
            )
        served = ", ".join(self._served) or "none yet"
        raise RequestError(ErrorCode.NOT_FOUND, f"no model {name[:64]!r} is served here", "model", served)

    def only(self, name: str | None) -> ServedModel:
        """Return the model that a request asks for; without a name the only one.

        Raises:
            RequestError: there is no such model, or several and no name.

        """
        if name is not None:
            return self.model(name)
        if self._alone is not None:
            return self._alone
        if not self._served:
            raise RequestError(ErrorCode.NOT_READY, "no model is served yet", "model")
        raise RequestError(
            ErrorCode.INVALID_ARGUMENT, "model: is missing", "model", ", ".join(sorted(self._served))
        )

    def find(self, name: str, version_id: str | None = None) -> LoadedVersion:
        """Return the version that serves a request.

        Raises:
            RequestError: model or version is not served.

        """
        return self.model(name).version(version_id)

    def ready(self, name: str, version_id: str | None = None) -> bool:
        """Return whether a model, or one version of it, is served.

        Raises:
            RequestError: the model is not known.

        """
        model = self._served.get(name)
        if model is None and name not in self._absent and name not in self._refused:
            self.model(name)
        return model is not None and (version_id is None or version_id in model.versions)

    def index(self) -> tuple[IndexEntry, ...]:
        """Return every known model, each served version on a line of its own.

        Raises:
            ModelLoadError: the repository cannot be read.

        """
        served = [
            IndexEntry(model.name, version_id, "READY", "")
            for model in self._served.values()
            for version_id in model.versions
        ]
        in_repository = set(self._repository_names())
        refused = [entry for name in in_repository for entry in self._refused.get(name, ())]
        gone = [
            entry
            for name, entry in self._absent.items()
            if (name in in_repository and name not in self._refused) or entry.state == "LOADING"
        ]
        unknown = in_repository - self._served.keys() - self._absent.keys() - self._refused.keys()
        never = [IndexEntry(name, "", "UNAVAILABLE", "") for name in unknown]
        return tuple(sorted([*served, *refused, *gone, *never]))
