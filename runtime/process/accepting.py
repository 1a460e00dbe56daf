"""New connections, and what happens when there is no file descriptor left for them.

The event loop's own servers (uvloop, libuv) accept such connections and close them without a word. Here they
wait in the kernel's queue: clients are served when descriptors come back, and the log says what is short.
"""

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
"""Before it is tried again to accept; the pause doubles with each failure in a row. In s."""
LOG_SECONDS: Final = 30.0
"""The log says at most so often that descriptors are short."""

_SHORTAGES: Final = {
    errno.EMFILE: "this process may have no more file descriptors than {limit}. Raise the limit (ulimit -n), "
    "use more workers, or let clients keep fewer connections",
    errno.ENFILE: "this machine has no file descriptor left. Raise the limit (sysctl fs.file-max)",
}


class AcceptPauses:
    """How long nothing is accepted after a failure, and when the log says so. One for all listeners."""

    def __init__(self) -> None:
        self._pause = 0.0
        self._logged_at: float | None = None

    def accepted(self) -> None:
        """Begin with a short pause next time."""
        self._pause = 0.0

    def failed(self, now: float) -> tuple[float, bool]:
        """Return how long to pause, in s, and whether the log should tell."""
        self._pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * self._pause))
        tells = self._logged_at is None or now - self._logged_at >= LOG_SECONDS
        if tells:
            self._logged_at = now
        return self._pause, tells


class Acceptor:
    """Accepts the connections of one listening socket, until it is closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: socket.socket,
        factory: Callable[[], asyncio.Protocol],
        pauses: AcceptPauses,
        on_failure: Callable[[], None],
    ) -> None:
        """Take over `listener`, which listens; `on_failure` is called whenever a connection has to wait."""
        listener.setblocking(False)
        self._loop = loop
        self._listener = listener
        self._factory = factory
        self._pauses = pauses
        self._on_failure = on_failure
        self._again: asyncio.TimerHandle | None = None
        self._opening: set[asyncio.Task[object]] = set()
        loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept what waits already, then nothing more."""
        self._loop.remove_reader(self._listener)
        if self._again is not None:
            self._again.cancel()
        else:
            while self._accept():
                pass
        if self._again is not None:
            self._again.cancel()
        self._listener.close()

    def _accept(self) -> bool:
        """Accept one connection; return whether there may be more, for which the loop calls again."""
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return False
        except ConnectionAbortedError:
            return True  # its client has left
        except OSError as error:
            self._wait(error)
            return False
        self._pauses.accepted()
        connection.setblocking(False)
        opening = self._loop.create_task(self._loop.connect_accepted_socket(self._factory, connection))
        self._opening.add(opening)
        opening.add_done_callback(self._opened)
        return True

    def _opened(self, opening: asyncio.Task[object]) -> None:
        self._opening.discard(opening)
        if not opening.cancelled() and (error := opening.exception()) is not None:
            log.debug("a connection was lost while it was opened: %s", error)

    def _wait(self, error: OSError) -> None:
        """Leave new connections in the kernel's queue for a while: to try again at once would burn CPU."""
        self._on_failure()
        pause, tells = self._pauses.failed(self._loop.time())
        if tells:
            log.warning("new connections wait: %s", _shortage(error))
        self._loop.remove_reader(self._listener)
        self._again = self._loop.call_later(pause, self._go_on)

    def _go_on(self) -> None:
        self._again = None
        self._loop.add_reader(self._listener, self._accept)


def _shortage(error: OSError) -> str:
    text = _SHORTAGES.get(error.errno or 0)
    if text is None:
        return str(error.strerror)
    return text.format(limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0])
