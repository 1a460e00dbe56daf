"""What resources are called inside and outside: the prefix of `mcp2026.io/gpu` is of the wire alone."""

from dataclasses import dataclass

from mcp2026.api.names import GROUP


@dataclass(frozen=True, slots=True)
class ResourceNames:
    """Turns names between ours (`mcp2026.io/gpu`), those on the wire, and the sockets that serve them."""

    prefix: str = GROUP
    socket_prefix: str = "mcp2026-"

    def outside(self, resource: str) -> str:
        """Return what the kubelet and pods call our `resource`."""
        return f"{self.prefix}/{_base(resource)}"

    def inside(self, name: str) -> str:
        """Return what we call the kubelet's resource `name`; one of another prefix stays as it is."""
        prefix, _, base = name.partition("/")
        return f"{GROUP}/{base}" if prefix == self.prefix else name

    def socket(self, resource: str) -> str:
        """Return the file name of the socket on which our `resource` is served."""
        return f"{self.socket_prefix}{_base(resource)}.sock"

    @property
    def all_sockets(self) -> str:
        """The pattern that fits the file names of all our sockets."""
        return f"{self.socket_prefix}*.sock"


def _base(resource: str) -> str:
    return resource.partition("/")[2]
