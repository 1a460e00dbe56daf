"""docs/placement.md tells what the scorer does now."""

import re

from mcp2026.topology.bands import BANDS
from tests.unit.topology.placement_page import BEGIN, END, PAGE, TOPOLOGIES, WHAT_IS_SEEN, with_choices


def test_the_choices_on_the_page_are_those_of_the_scorer() -> None:
    page = PAGE.read_text()
    assert BEGIN in page
    assert END in page
    assert with_choices(page) == page, "run: python -m tests.unit.topology.placement_page"


def test_every_fixture_is_explained() -> None:
    assert set(WHAT_IS_SEEN) == {path.stem for path in TOPOLOGIES.glob("*.yaml")}


def test_the_page_names_all_bands_in_their_order() -> None:
    section = PAGE.read_text().partition("\n## The score\n")[2].partition("\n## ")[0]
    named = re.findall(r"^\| \d \| `([a-z-]+)` \|", section, re.MULTILINE)
    assert named == [name for name, _ in BANDS]
