"""A worker's part in a change: prepare it unseen, then commit or discard it when the parent says so."""

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Collection

from mcp2026.api.errors import SettingsError
from mcp2026.api.serving import ServingConfig
from mcp2026.runtime.changes import (
    Change,
    Changed,
    RegisterRegion,
    UnloadModel,
    UnregisterRegion,
    VersionChange,
    VersionsChanged,
)
from mcp2026.runtime.errors import ErrorCode, ModelLoadError, RequestError, StartupError
from mcp2026.runtime.inference import InferenceService
from mcp2026.runtime.model.freed_memory import give_back_freed_memory
from mcp2026.runtime.model.loaded import LoadedVersion, ServedModel
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.process.control import (
    Ask,
    Commit,
    Committed,
    Discard,
    NoteRefusal,
    Prepare,
    Prepared,
    ServeModel,
    Step,
    ToParent,
    problem_of,
)
from mcp2026.runtime.process.control import Changed as Answered
from mcp2026.runtime.shared_memory.regions import SharedMemoryRegions

log = logging.getLogger(__name__)

GIVE_BACK_SECONDS = 0.5
"""After the last version has left."""

Load = Callable[[ServingConfig, tuple[LoadedVersion, ...], bool], Awaitable[ServedModel]]
"""Loads a model of which some versions are served already, and which may differ from them or not."""


class ChangeSteps:
    """Makes the parent's changes here, and passes on those that clients of this worker ask for."""

    def __init__(
        self,
        load: Load,
        store: ModelStore,
        service: InferenceService,
        regions: SharedMemoryRegions,
        tell: Callable[[ToParent], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._load = load
        self._store = store
        self._service = service
        self._regions = regions
        self._tell = tell
        self._prepared: dict[int, tuple[Step, ServedModel | None]] = {}
        self._waiting: dict[int, Callable[[Answered], None]] = {}
        self._next_request = 0
        self._preparing: dict[int, asyncio.Task[None]] = {}
        self._giving_back: asyncio.TimerHandle | None = None

    def request(self, change: Change, changed: Changed) -> None:
        """Ask the parent for `change`; `changed` is told the outcome."""
        self._ask(change, lambda answer: changed(_error_of(answer)))

    def request_versions(self, change: VersionChange, changed: VersionsChanged) -> None:
        """Ask the parent for `change`; `changed` is told the revision of the model, or the problem."""
        self._ask(change, lambda answer: changed(_error_of(answer) or answer.revision))

    def _ask(self, change: Change | VersionChange, answered: Callable[[Answered], None]) -> None:
        self._waiting[self._next_request] = answered
        self._tell(Ask(self._next_request, change))
        self._next_request += 1

    def follow(self, message: Prepare | Commit | Discard | Answered) -> None:
        """Do what the parent says."""
        match message:
            case Prepare(change_id, step):
                task = self._loop.create_task(self._prepare(change_id, step))
                self._preparing[change_id] = task
                task.add_done_callback(lambda _: self._preparing.pop(change_id, None))
            case Commit(change_id):
                self._commit(*self._prepared.pop(change_id))
                self._tell(Committed(change_id))
            case Discard(change_id):
                self._discard(change_id)
            case Answered(request_id):
                self._waiting.pop(request_id)(message)

    async def _prepare(self, change_id: int, step: Step) -> None:
        model = None
        try:
            if isinstance(step, ServeModel):
                live = self._store.versions(step.config.model)
                model = await self._load(step.config, live, step.may_differ)
            elif isinstance(step, RegisterRegion):
                self._regions.register(step.name, step.key, step.offset, step.byte_size)
        except RequestError as error:
            self._tell(Prepared(change_id, problem_of(error)))
        except (StartupError, SettingsError) as error:
            problem = RequestError(ErrorCode.INVALID_ARGUMENT, str(error), _field_of(error, step))
            self._tell(Prepared(change_id, problem_of(problem)))
        except Exception as error:
            log.exception("a change could not be prepared")
            self._tell(Prepared(change_id, problem_of(RequestError(ErrorCode.INTERNAL, str(error)))))
        else:
            self._prepared[change_id] = (step, model)
            self._tell(Prepared(change_id, None))

    def _commit(self, step: Step, model: ServedModel | None) -> None:
        if isinstance(step, UnloadModel):
            self._watch_leaving(step.model, ())
            self._store.remove(step.model, "unloaded")
            self._service.retire(step.model)
        elif isinstance(step, UnregisterRegion):
            self._regions.unregister(step.name)
        elif isinstance(step, NoteRefusal):
            self._store.refuse(step.model, step.versions, step.reason)
        elif model is not None:
            self._watch_leaving(model.name, model.versions.values())
            self._store.put(model)
            self._service.serve(model)

    def _watch_leaving(self, name: str, staying: Collection[LoadedVersion]) -> None:
        """Give memory back when the last request has let go of the versions that are served no more."""
        for version in self._store.versions(name):
            if version in staying:
                continue
            finalizer = weakref.finalize(version, self._loop.call_soon_threadsafe, self._give_back)
            finalizer.atexit = False

    def _give_back(self) -> None:
        """Give memory back soon, once for all that leave meanwhile: who allocates waits for it."""
        if self._giving_back is not None:
            self._giving_back.cancel()
        self._giving_back = self._loop.call_later(
            GIVE_BACK_SECONDS, self._loop.run_in_executor, None, give_back_freed_memory
        )

    def _discard(self, change_id: int) -> None:
        if (preparing := self._preparing.get(change_id)) is not None:
            preparing.cancel()  # it takes too long: its thread is left behind, and what it loads is dropped
        prepared = self._prepared.pop(change_id, None)
        if prepared is not None and isinstance(prepared[0], RegisterRegion):
            self._regions.unregister(prepared[0].name)


def _error_of(answer: Answered) -> RequestError | None:
    return None if answer.problem is None else answer.problem.error()


def _field_of(error: StartupError | SettingsError, step: Step) -> str:
    """Return which field of the request named what cannot be served."""
    if isinstance(step, ServeModel) and isinstance(error, ModelLoadError):
        registered = [one.path for one in step.config.versions if one.uri]
        return "uri" if error.path in registered else "model"
    return "model"
