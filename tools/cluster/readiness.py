"""Waits for programs to become ready, and notices at once when one ends instead."""

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tools.cluster.certificates import KeyPair
from tools.cluster.errors import ProgramFailedError
from tools.cluster.processes import is_alive
from tools.cluster.record import StartedProgram

READY_TIMEOUT_S = 90.0
"""Seconds that a program may take to become ready on a busy machine."""

POLL_EVERY_S = 0.05
"""Seconds between two looks at something that gives no event of its own."""


def wait_ready(program: StartedProgram, is_ready: Callable[[], bool], timeout_s: float) -> None:
    """Return when a program is ready; raise ProgramFailedError with its log if it ends or time is up."""
    deadline = time.monotonic() + timeout_s
    while not is_ready():
        if not is_alive(program.identity):
            raise ProgramFailedError(program.program, "ended before it was ready", Path(program.log))
        if time.monotonic() >= deadline:
            raise ProgramFailedError(
                program.program, f"was not ready in {timeout_s:.0f} s", Path(program.log)
            )
        time.sleep(POLL_EVERY_S)


class HttpProbe:
    """Asks a URL whether a program is ready."""

    def __init__(self, url: str, authority: str | None = None, client: KeyPair | None = None) -> None:
        self.url = url
        self._context: ssl.SSLContext | None = None
        if authority is not None:
            self._context = ssl.create_default_context(cafile=authority)
            if client is not None:
                self._context.load_cert_chain(client.certificate, client.key)
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self._context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=self._context))
        self._opener = urllib.request.build_opener(*handlers)

    def __call__(self) -> bool:
        """Tell whether the URL answers with success within two seconds."""
        try:
            with self._opener.open(self.url, timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
