"""A real Kubernetes on one machine, for tests and demonstrations.

No container engine is needed: the programs are built from pinned Go modules, run as plain
processes, and everything that they leave behind is recorded so that it can be removed again.
"""

from tools.cluster.bring_up import up
from tools.cluster.cluster import Cluster
from tools.cluster.errors import ClusterError, ProgramFailedError, RequirementsMissingError
from tools.cluster.levels import Level
from tools.cluster.requirements import missing_requirements

__all__ = [
    "Cluster",
    "ClusterError",
    "Level",
    "ProgramFailedError",
    "RequirementsMissingError",
    "missing_requirements",
    "up",
]
