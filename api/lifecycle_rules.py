"""The life cycle's table as the API server checks it (CEL), and as the docs draw it (Mermaid).

CEL sees a status before and after, not the evidence of an event: it checks that the phase moved along one
step of the table, and that this step was recorded with its event.
"""

from itertools import groupby

from mcp2026.api.lifecycle import TABLE, Phase


def phase_rule() -> str:
    """Return the rule of `status.phase`, an expression over `self` and the optional `oldSelf`."""
    allowed = ["self == oldSelf.value()"]
    for start, steps in groupby(TABLE, key=lambda step: step.start):
        ends = ", ".join(f"'{step.end}'" for step in steps)
        allowed.append(f"(oldSelf.value() == '{start}' && self in [{ends}])")
    return f"oldSelf.hasValue() ? ({' || '.join(allowed)}) : self == '{Phase.PENDING}'"


def phase_message() -> str:
    """Return what the API server says where `phase_rule` does not hold."""
    steps = []
    for start, group in groupby(TABLE, key=lambda step: step.start):
        steps.append(f"{start} to {' or '.join(step.end for step in group)}")
    return f"allowed: first {Phase.PENDING}; {'; '.join(steps)}"


def record_rule() -> str:
    """Return the rule of `status`: a phase that moves has its step as the newest of `transitions`."""
    last = "self.transitions[self.transitions.size() - 1]"
    steps = ", ".join(f"'{step.start} {step.event.__name__} {step.end}'" for step in TABLE)
    return (
        "!has(oldSelf.phase) || !has(self.phase) || self.phase == oldSelf.phase"
        " || (has(self.transitions) && self.transitions.size() > 0"
        f" && {last}.from == oldSelf.phase && {last}.to == self.phase"
        f" && {last}.from + ' ' + {last}.event + ' ' + {last}.to in [{steps}])"
    )


RECORD_MESSAGE = "a phase moves by an event alone: its step must be the newest of status.transitions"


def diagram() -> str:
    """Return the life cycle as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {Phase.PENDING}"]
    for step in TABLE:
        guards = " and ".join(guard.text for guard in step.guards)
        lines.append(f"    {step.start} --> {step.end}: {step.event.__name__} [{guards}]")
    starts = {step.start for step in TABLE}
    lines += [f"    {phase} --> [*]" for phase in Phase if phase not in starts]
    return "\n".join(lines) + "\n"
