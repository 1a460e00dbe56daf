"""Which of the nodes that fit are handed on to kube-scheduler, where not all shall be (decision 0124)."""

from zlib import crc32

from mcp2026.scheduler_extender.prioritizing import Ranking


def best_nodes(ranking: Ranking, most: int, pod_uid: str) -> tuple[str, ...]:
    """Return the `most` nodes with the highest priorities, in the order of the ranking.

    Where nodes of one priority do not all go in, as many are taken as do, in a row that begins at a place
    that depends on the pod: other pods are shown others.
    """
    if len(ranking.nodes) <= most:
        return ranking.nodes
    levels: dict[int, list[int]] = {}
    for place, priority in enumerate(ranking.priority_of_each()):
        levels.setdefault(priority, []).append(place)
    chosen: list[int] = []
    for priority in sorted(levels, reverse=True):
        places, room = levels[priority], most - len(chosen)
        if len(places) > room:
            begin = crc32(pod_uid.encode()) % len(places)
            places = (places[begin:] + places[:begin])[:room]
        chosen += places
        if len(chosen) == most:
            break
    return tuple(ranking.nodes[place] for place in sorted(chosen))
