"""Where a server is, and what is spoken there: read from one URL."""

from enum import StrEnum
from typing import NamedTuple
from urllib.parse import unquote, urlsplit


class Transport(StrEnum):
    """What is spoken with the server."""

    HTTP1 = "http/1.1"
    HTTP2 = "h2"
    GRPC = "grpc"


class Address(NamedTuple):
    """One server."""

    transport: Transport
    host: str
    """Empty for a Unix socket."""
    port: int
    unix_path: str
    """Empty for TCP."""
    prefix: str = ""
    """Before every path, without a slash at its end: where a proxy has the server below a folder."""

    @property
    def authority(self) -> str:
        """The value of `Host` and `:authority`."""
        if self.unix_path:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 80 else f"{host}:{self.port}"

    @property
    def grpc_target(self) -> str:
        """The server's name for grpcio."""
        if self.unix_path:
            return f"unix:{self.unix_path}"
        return f"dns:///[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        """Return where the server is, for messages."""
        return f"unix:{self.unix_path}" if self.unix_path else f"{self.host}:{self.port}"


_SCHEMES = {
    "http": (Transport.HTTP1, False),
    "h2": (Transport.HTTP2, False),
    "grpc": (Transport.GRPC, False),
    "unix": (Transport.HTTP1, True),
    "h2+unix": (Transport.HTTP2, True),
    "grpc+unix": (Transport.GRPC, True),
}
_ALLOWED = ", ".join(f"{scheme}://" for scheme in _SCHEMES)


def parse_address(url: str, *, http2: bool = False) -> Address:
    """Return where `url` leads; `http2` makes `http` and `unix` what `h2` and `h2+unix` are.

    Raises:
        ValueError: the URL is not of a known form; says which are.

    """
    parts = urlsplit(url)
    if parts.scheme in ("https", "grpcs"):
        raise ValueError(f"{url!r}: TLS is not spoken by the server nor by this client; allowed: {_ALLOWED}")
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"{url!r} has no known scheme; allowed: {_ALLOWED}")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(
            f"{url!r} has more than an address; allowed: scheme, host, port and a path before /v2"
        )
    transport, is_unix = _SCHEMES[parts.scheme]
    if http2 and transport is Transport.GRPC:
        raise ValueError(f"{url!r}: http2=True has no meaning for gRPC")
    if http2:
        transport = Transport.HTTP2
    if is_unix:
        if parts.netloc or len(parts.path) < 2:
            raise ValueError(f"{url!r} names no socket; allowed: {parts.scheme}:///absolute/path")
        return Address(transport, "", 0, unquote(parts.path))
    if not parts.hostname:
        raise ValueError(f"{url!r} names no host; allowed: {parts.scheme}://host:port")
    port = parts.port or (0 if transport is Transport.GRPC else 80)
    if not port:
        raise ValueError(f"{url!r} names no port; allowed: grpc://host:8081")
    prefix = parts.path.rstrip("/")
    if prefix and transport is Transport.GRPC:
        raise ValueError(f"{url!r} has a path, which gRPC has no place for; allowed: grpc://host:port")
    return Address(transport, parts.hostname, port, "", prefix)
