"""Work beside the event loop, one piece at a time, in the order in which it came."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Background:
    """One thread. What it calls needs no lock against other calls of the same thread."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def call(
        self, function: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Result:
        """Return what `function` returns, or raise what it raises."""
        return await asyncio.wrap_future(self._thread.submit(function, *args, **kwargs))

    def close(self) -> None:
        """Wait for the end of what is under way, and take no more."""
        self._thread.shutdown(wait=True)
