"""A mailbox for documents of which only the newest counts."""

import asyncio


class Newest:
    """Sources put documents in, whoever follows takes the newest; what came between is never looked at."""

    def __init__(self) -> None:
        self._document: bytes | None = None
        self._last: bytes | None = None
        self._changed = asyncio.Event()

    def put(self, document: bytes) -> None:
        """Replace what was not taken yet. What was put last is nothing new: each watch begins with it."""
        if document == self._last:
            return
        self._document = self._last = document
        self._changed.set()

    async def other_than(self, document: bytes) -> None:
        """Wait for one that says something else; the same one again is thrown away."""
        while True:
            await self._changed.wait()
            if self._document != document:
                return
            self._changed.clear()

    async def take(self, seconds: float | None = None) -> bytes | None:
        """Return the newest document as soon as there is one, or None after so many seconds."""
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return None
        self._changed.clear()
        document, self._document = self._document, None
        return document
