"""Kubernetes quantities as numbers."""

from decimal import Decimal

import pytest

from mcp2026.api.quantities import parse_quantity


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", "0"),
        ("2", "2"),
        ("+2", "2"),
        ("2.", "2"),
        (".5", "0.5"),
        ("1500m", "1.5"),
        ("2k", "2000"),
        ("4Gi", "4294967296"),
        ("4G", "4000000000"),
        ("1Ei", "1152921504606846976"),
        ("1e3", "1000"),
        ("25E-1", "2.5"),
    ],
)
def test_a_quantity_is_exact(text: str, amount: str) -> None:
    assert parse_quantity(text) == Decimal(amount)


@pytest.mark.parametrize(
    "text", ["", ".", "-1", "two", "1 Gi", "1gi", "1Ki2", "0x10", "٣", "1e100", "NaN", "1\n"]
)
def test_what_is_none_gives_none(text: str) -> None:
    assert parse_quantity(text) is None
