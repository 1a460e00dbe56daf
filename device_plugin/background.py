"""Blocking calls beside the event loop, in threads that never hold up the end of the process.

A call into the driver of a dead GPU may never return, and a pool of threads would wait for it on exit.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

_Result = TypeVar("_Result")


async def blocking_call(function: Callable[[], _Result]) -> _Result:
    """Run `function` in a daemon thread and return its result or raise its exception."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_Result] = loop.create_future()

    def settle(give: Callable[[], None]) -> None:
        if not answer.cancelled():
            give()

    def work() -> None:
        try:
            give = partial(answer.set_result, function())
        except BaseException as error:  # handed to the caller, whatever it is
            give = partial(answer.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended meanwhile: nobody waits for the answer
            loop.call_soon_threadsafe(settle, give)

    threading.Thread(
        target=work, name=f"blocking-{getattr(function, '__name__', 'call')}", daemon=True
    ).start()
    return await answer
