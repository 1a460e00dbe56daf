"""One request and how its answer is read: what every client sends, whatever the server."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.protocols import Transport

Floats = npt.NDArray[np.float32]
Decode = Callable[[Mapping[str, str], bytes], Floats]
"""From the headers (names in lower case) and the body of an answer to the output tensor."""


@dataclass(frozen=True)
class Address:
    """Where a server listens: a port of the loopback interface, or the path of a Unix socket."""

    port: int = 0
    unix: str | None = None

    @property
    def authority(self) -> str:
        """The host and port of a URL; a Unix socket has none, so any will do."""
        return "localhost" if self.unix else f"127.0.0.1:{self.port}"

    def __str__(self) -> str:
        return f"unix:{self.unix}" if self.unix else self.authority


@dataclass(frozen=True)
class Exchange:
    """A POST of `body` to `path`; with gRPC, `path` is the method and `body` one message without its prefix.

    `prepare` is sent once before.
    """

    transport: Transport
    address: Address
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    decode: Decode
    prepare: tuple["Exchange", ...] = ()
