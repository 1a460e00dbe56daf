"""A connection that is half open: it looks as if it stood, and what is sent into it arrives nowhere."""

import socket
import threading
from contextlib import suppress

_PIECE = 65_536


class SwallowingRelay:
    """Passes bytes on to `target`, on a port of its own, until it is told to swallow them."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._swallowing = threading.Event()
        self.swallowed = threading.Event()
        """Set once something was lost."""
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        """Let nothing through any more, in either direction, and close nothing."""
        self._swallowing.set()

    def pass_on(self) -> None:
        """Let new connections through again; of those that there are, what was lost stays lost."""
        self._swallowing.clear()

    def close(self) -> None:
        """Close all connections."""
        for one in [self._listener, *self._sockets]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self._sockets += [near, far]
            lost = threading.Event()
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, target, lost), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE):
                if self._swallowing.is_set() or lost.is_set():
                    lost.set()
                    self.swallowed.set()
                else:
                    target.sendall(piece)
            if not lost.is_set():
                target.shutdown(socket.SHUT_WR)
