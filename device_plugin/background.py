"""Blocking calls beside the event loop, in threads that never hold up the end of the process.

A call into the driver of a dead GPU may never return, and a pool of threads would wait for it on exit.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

_Result = TypeVar("_Result")


async def blocking_call(function: Callable[[], _Result]) -> _Result:
    """Run `function` in a daemon thread and return its result or raise its exception."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_Result] = loop.create_future()

    def settle(result: _Result | None, error: BaseException | None) -> None:
        if answer.cancelled():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result: _Result | None = None
        failure: BaseException | None = None
        try:
            result = function()
        except BaseException as error:  # handed to the caller, whatever it is
            failure = error
        with suppress(RuntimeError):  # the loop has ended meanwhile: nobody waits for the answer
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(
        target=work, name=f"blocking-{getattr(function, '__name__', 'call')}", daemon=True
    ).start()
    return await answer
