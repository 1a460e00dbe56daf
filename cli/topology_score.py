"""Which GPUs are best, and why, as text for people."""

from mcp2026.cli.topology_table import columns, ranges
from mcp2026.topology.bands import Score
from mcp2026.topology.explanation import Explanation
from mcp2026.topology.snapshot import PlacementSnapshot


def render_explanation(snapshot: PlacementSnapshot, found: Explanation) -> str:
    """Return the choice, the band that decided, and a table of terms beside the best set that lost."""
    choice = found.choice
    lines = [f"{named(snapshot, choice.gpus)} of {ranges(snapshot.indices(snapshot.free)) or 'none'} free"]
    lines.append(f"because: {reason(snapshot, found)}")
    if not choice.exact:
        lines.append("there are too many sets to look at all: this is the best that was found")
    headings = ["TERM", "UNIT", named(snapshot, choice.gpus)]
    rows = [[term.name, term.unit or "-", str(term.value)] for term in choice.score.terms]
    if found.runner_up_score is not None:
        headings.append(f"NEXT BEST: {ranges(snapshot.indices(found.runner_up))}")
        for row, term in zip(rows, found.runner_up_score.terms, strict=True):
            row.append(str(term.value))
    return "\n".join([*lines, "", columns(headings, rows)])


def named(snapshot: PlacementSnapshot, gpus: tuple[int, ...]) -> str:
    """Return ``GPU 3`` or ``GPUs 0,1``."""
    if not gpus:
        return "no GPU"
    return f"GPU{'s' if len(gpus) > 1 else ''} {ranges(snapshot.indices(gpus))}"


def reason(snapshot: PlacementSnapshot, found: Explanation) -> str:
    """Return in one sentence why this set won."""
    if not found.compared:
        return "no set that was looked at is better"
    ties = ""
    if found.equals:
        as_good = "another set is" if found.equals == 1 else f"{found.equals} other sets are"
        ties = f"{as_good} as good, this one has the lowest indices"
    if found.runner_up_score is None:
        return ties or "there is no other set"
    won = _value(found.choice.score, found.decided_by)
    lost = _value(found.runner_up_score, found.decided_by)
    other = ranges(snapshot.indices(found.runner_up))
    decided = f"{found.decided_by} {won} against {lost} of the next best, {other}"
    return f"{decided}; {ties}" if ties else decided


def _value(score: Score, name: str) -> str:
    term = next(term for term in score.terms if term.name == name)
    return f"{term.value} {term.unit}".rstrip()
