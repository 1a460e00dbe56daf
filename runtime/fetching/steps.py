"""Steps that block, and are never left behind half done."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def to_its_end(step: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run `step` in a thread, and wait for its end even if this is cancelled meanwhile.

    A thread cannot be cancelled: one that is left behind would write into a file that another transfer has
    gone on with.
    """
    running = asyncio.ensure_future(asyncio.to_thread(step, *arguments, **named))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # looked at: nobody else will
        raise
