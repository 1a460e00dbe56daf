"""How many CPUs this process may use: the least of affinity, cgroup v2 and cgroup v1 quota.

ONNX Runtime counts the machine's cores instead, and in a pod with two CPUs on a host of ninety-six its
threads then throttle each other.
"""

import math
import os
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")


def usable_cpus(root: Path = CGROUP_ROOT) -> int:
    """Return the number of CPUs, at least 1; a quota of 1.5 CPUs counts as 2."""
    available = len(os.sched_getaffinity(0))
    quota = cgroup_quota(root)
    return max(1, min(available, math.ceil(quota))) if quota else max(1, available)


def cgroup_quota(root: Path) -> float | None:
    """Return the CPU quota under `root` in CPUs, None if there is none.

    In a container the process's own group is mounted as the root, so no path has to be followed.
    """
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        quota_us = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        period_us = int((root / "cpu" / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None
