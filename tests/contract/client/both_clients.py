"""The blocking client and the asyncio one behind the same calls, so that one test asks both."""

import asyncio
import contextlib
import gc
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from mcp2026.client import AsyncClient, Client

PATIENCE = 60.0
"""Longest that a test waits for something that will surely happen, in s."""
STYLES = ("blocking", "asyncio")
PROTOCOLS = ("http", "h2", "grpc")


async def in_the_loop(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what `function` does inside of a loop."""
    return function(*arguments)


class Awaited:
    """An asyncio client whose loop runs in a thread of its own; a call waits for the answer."""

    def __init__(self, url: str, **settings: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.client = AsyncClient(url, **settings)

    def run(self, call: Callable[[AsyncClient], Any]) -> Any:
        return self._wait(call(self.client))

    def __getattr__(self, name: str) -> Any:
        if name == "batching":
            return self.client.batching
        method = getattr(self.client, name)
        if name == "renegotiate":
            return lambda offer: self._wait(in_the_loop(method, offer))
        return lambda *arguments, **named: self._wait(method(*arguments, **named))

    def close(self) -> None:
        self._wait(self.client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def _wait(self, awaited: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(awaited, self._loop).result(PATIENCE * 2)


Connect = Callable[..., Any]


@contextlib.contextmanager
def connected(style: str) -> Iterator[Connect]:
    """Give a function that makes a client of `style`; all are closed at the end."""
    clients: list[Any] = []

    def connect(url: str, **settings: Any) -> Any:
        clients.append((Client if style == "blocking" else Awaited)(url, **settings))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def sockets() -> int:
    """Return how many sockets this process has open."""
    found = 0
    for path in Path(f"/proc/{os.getpid()}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += str(path.readlink()).startswith("socket:")
    return found


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Fail unless sockets and threads are as many after the block as before."""
    gc.collect()
    before = sockets(), threading.active_count()
    yield
    deadline = time.monotonic() + 10
    while True:
        gc.collect()
        after = sockets(), threading.active_count()
        if after[0] <= before[0] and after[1] <= before[1]:
            return
        assert time.monotonic() < deadline, f"sockets and threads: {before} before, {after} after"
        time.sleep(0.01)
