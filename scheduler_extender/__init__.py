"""The scheduler extender: kube-scheduler asks it which nodes fit a GPU pod, and which fits best.

The way of a request is `server` → `wire` → `decisions` → `filtering` or `prioritizing` over a `snapshot`;
the way of a change in the cluster is `adapters.cluster_watch` → `watching` → `cache` → `snapshot`.
"""
