"""The plans of requests over HTTP, by their JSON without id and lists."""

import weakref
from collections.abc import Sequence

import msgspec

from mcp2026.runtime.model.loaded import LoadedVersion
from mcp2026.runtime.protocol.open_inference.http_answers import HttpAnswers
from mcp2026.runtime.protocol.open_inference.plans import (
    InRegion,
    Listed,
    Plan,
    Reader,
    Remembered,
    behind,
    can_be_listed,
)
from mcp2026.runtime.protocol.open_inference.questions import Question
from mcp2026.runtime.protocol.open_inference.requests import InferRequest, Limits
from mcp2026.runtime.protocol.open_inference.skeletons import (
    MARK_OF_ID,
    Key,
    marked,
    without_id,
    without_lists,
)

HttpPlan = Plan[HttpAnswers]
Found = tuple[HttpPlan | None, str, Sequence[bytes]]
"""A plan, and the id and the lists of the request."""

_MISSING = msgspec.Raw()


class _Tensor(msgspec.Struct):
    data: msgspec.Raw = _MISSING


class _Marked(msgspec.Struct):
    """What of a document shows whether the marks are where they should be."""

    inputs: list[_Tensor]
    id: str


_MARKED = msgspec.json.Decoder(_Marked)


class HttpPlans:
    """What was asked of the versions that are served."""

    def __init__(self, most: int = 256, longest: int = 4_096) -> None:
        """Keep up to `most` plans for each version, by up to `longest` bytes of JSON."""
        self._plans: Remembered[HttpPlan] = Remembered(most, longest)
        self._latest: dict[int, tuple[Key, HttpPlan]] = {}
        """Per version, by its identity, what was found last: mostly it is asked again."""

    def find(self, version: LoadedVersion, text: bytes) -> Found:
        """Return what is known of a request by its JSON."""
        text, request_id = without_id(text)
        latest = self._latest.get(id(version))
        if latest is not None:
            key, plan = latest
            if key == text:
                return plan, request_id, ()
            if isinstance(key, tuple) and len(key) == 2:
                start, end = key
                if text.startswith(start) and text.endswith(end):
                    # They may overlap, and the rest may be anything: `Listed` looks at it.
                    return plan, request_id, (text[len(start) - 1 : len(text) - len(end) + 1],)
        cut_key, lists = without_lists(text)
        found = self._plans.find(version, cut_key)
        if found is not None:
            if latest is None:
                weakref.finalize(version, self._latest.pop, id(version), None)
            self._latest[id(version)] = (cut_key, found)
        return found, request_id, lists

    def learn(
        self,
        text: bytes,
        asked: Question,
        request: InferRequest[HttpAnswers],
        follows: int,
        limits: Limits,
        levels: int,
    ) -> None:
        """Remember a request that was read precisely, if those with the same JSON are read alike.

        `text` is its JSON, behind which `follows` bytes came.
        """
        key, lists = without_lists(without_id(text)[0])
        if self._plans.too_long(key):
            return
        readers = _readers(asked, key, len(lists))
        if readers is not None:
            plan = Plan(asked, request, readers, follows, limits, levels)
            self._plans.keep(request.version, key, plan)

    def count(self, version: LoadedVersion) -> int:
        """Return how many plans there are for a version."""
        return self._plans.count(version)


def _readers(asked: Question, key: Key, lists: int) -> list[Reader] | None:
    """Return what reads the inputs of requests with the same `key`, None if they need not be alike."""
    try:
        document = _MARKED.decode(marked(key))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    places = [bytes(tensor.data) for tensor in document.inputs if tensor.data is not _MISSING]
    if document.id != MARK_OF_ID or places != [b"%d" % number for number in range(lists)]:
        return None
    readers: list[Reader] = []
    offset = listed = 0
    for source in asked.sources:
        if source.part is not None:
            readers.append(InRegion(source, source.part))
        elif source.follows:
            readers.append(behind(source, offset, source.byte_size))
            offset += source.byte_size
        elif can_be_listed(source):
            readers.append(Listed(source, listed))
            listed += 1
        else:
            return None
    return readers
