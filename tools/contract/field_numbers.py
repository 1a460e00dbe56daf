"""Numbers of fields stay: what was written before is compared with what would be written now.

A number that means another field reads old messages wrongly, and nobody notices. So a field keeps its number,
and the number of one that is gone is kept from others by `x-proto-reserved`.
"""

import re

from tools.contract.source import SourceError

_LINE = re.compile(
    r"^message (?P<message>\w+) \{$"
    r"|^  reserved (?P<reserved>[\d, ]+);$"
    r"|^  [^/].* (?P<field>\w+) = (?P<number>\d+);$",
    re.MULTILINE,
)
Numbers = dict[str, dict[int, str]]
"""Message → number → name of the field; an empty name for a number that is reserved."""


def numbers_in(proto: str) -> Numbers:
    """Return all numbers of a proto that this tool wrote."""
    found: Numbers = {}
    fields: dict[int, str] = {}
    for line in _LINE.finditer(proto):
        if line["message"]:
            fields = found.setdefault(line["message"], {})
        elif line["reserved"]:
            fields |= {int(place): "" for place in line["reserved"].split(",")}
        else:
            fields[int(line["number"])] = line["field"]
    return found


def check_numbers(before: Numbers, now: Numbers) -> None:
    """Raise unless every number means what it meant.

    Raises:
        SourceError: one has changed, is used again, or is gone without being reserved.

    """
    for message, fields in before.items():
        if message not in now:
            continue
        for place, name in fields.items():
            successor = now[message].get(place)
            if successor == name or successor == "":
                continue
            meant = f"{name!r}" if name else "reserved"
            became = f"is {successor!r} now" if successor else "is neither used nor in x-proto-reserved"
            raise SourceError(f"{message}: the number {place} was {meant} and {became}")
