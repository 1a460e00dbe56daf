"""What does a Kubernetes quantity amount to? ``500m``, ``2``, ``4Gi`` and ``1e3`` as numbers."""

import re
from decimal import Decimal
from typing import Final

_QUANTITY: Final = re.compile(
    r"\+?(\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d{1,2})|(m|[kMGTPE]|[KMGTPE]i)?)", re.ASCII
)
_MULTIPLIERS: Final = {
    "m": Decimal("0.001"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


def parse_quantity(text: str) -> Decimal | None:
    """Return the exact value of a quantity; None for what is none, or negative."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    digits, exponent, suffix = match.groups()
    return Decimal(digits) * Decimal(10) ** int(exponent or 0) * _MULTIPLIERS.get(suffix, Decimal(1))
