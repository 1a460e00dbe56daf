"""What a run has made on this machine, written down before or at the moment it is made.

`down` works from this record alone, so it can be called from another process, and after the process that
brought the cluster up was killed. Nothing that is not recorded here is ever touched.
"""

import contextlib
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from tools.cluster.cache import replacing
from tools.cluster.errors import ClusterError

RECORD_FILE = "record.json"

NAME_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
"""Names become parts of paths, cgroups and node names."""


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process for good: its id alone may be given to another process after it ends."""

    pid: int
    start_ticks: int
    """When it started, in clock ticks since the machine did (field 22 of /proc/PID/stat)."""


class StartedProgram(msgspec.Struct, frozen=True):
    """A program that the run started."""

    program: str
    identity: ProcessIdentity
    log: str


class Record(msgspec.Struct):
    """All that a run has made. Paths and names are absolute; order is the order of making."""

    name: str
    level: str
    folder: str
    boot_id: str
    run_id: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)
    """In the environment of everything the run starts, and inherited by what those start."""
    owner: ProcessIdentity | None = None
    """The process whose end makes this run a remain; None if the run stays until `down`."""
    ports: list[int] = []
    programs: list[StartedProgram] = []
    mounts: list[str] = []
    """Folders at and under which everything mounted is the run's."""
    interfaces: list[str] = []
    nft_tables: list[str] = []
    """Families and names, such as `ip kube-proxy`."""
    cgroups: list[str] = []
    """Paths below each controller's root: every process in them is the run's."""
    sysctls: dict[str, str] = {}
    """Values from before the run, put back by `down`."""
    link_folders: list[str] = []
    """Folders in which links that point into the run's own folder are the run's."""
    api_url: str = ""

    @property
    def path(self) -> Path:
        """Return the file that the record is kept in."""
        return Path(self.folder) / RECORD_FILE

    def save(self) -> None:
        """Write the record so that a reader sees the old one or the new one, never half of one."""
        with replacing(self.path) as temporary:
            temporary.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))


def checked_name(name: str) -> str:
    """Return the name if it can be a cluster's; raise ClusterError saying what it may consist of."""
    if not NAME_PATTERN.fullmatch(name):
        raise ClusterError(
            f"the cluster name {name!r} may have 1 to 32 characters: small letters, digits and inner hyphens"
        )
    return name


def load(path: Path) -> Record:
    """Read a record back."""
    return msgspec.json.decode(path.read_bytes(), type=Record)


def boot_id() -> str:
    """Return what tells this start of the machine from any other."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of all runs: MCP2026_STATE, or where this user's programs keep their state."""
    if own := environment.get("MCP2026_STATE"):
        return Path(own)
    if os.geteuid() == 0:
        return Path("/var/lib/mcp2026/clusters")
    return Path.home() / ".local" / "state" / "mcp2026" / "clusters"


def records(state: Path | None = None) -> Iterator[Record]:
    """Yield the record of every run that has not been taken down."""
    for path in sorted((state or state_folder()).glob(f"*/{RECORD_FILE}")):
        with contextlib.suppress(FileNotFoundError):  # taken down since the folder was read
            yield load(path)
