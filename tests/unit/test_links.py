"""Links between the pages of this repository lead to a file that is there, and to a heading that it has."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT = {"build", "models"}
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _pages() -> list[str]:
    """Return the pages below the root, but for folders that are hidden or made by a build."""
    folders = [entry for entry in ROOT.iterdir() if entry.is_dir() and entry.name not in BUILT]
    found = [*ROOT.glob("*.md")]
    found += [page for one in folders if not one.name.startswith(".") for page in one.rglob("*.md")]
    return sorted(str(page.relative_to(ROOT)) for page in found)


def _anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    texts = (re.sub(r"\]\([^)]*\)", "]", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts}


def _folder(page: str) -> Path:
    """Return the folder from which a page's links lead; news fragments are read as parts of CHANGELOG.md."""
    return ROOT if page.startswith("changes/") else (ROOT / page).parent


@pytest.mark.parametrize("page", _pages())
def test_every_link_leads_somewhere(page: str) -> None:
    text = CODE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = _folder(page) / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link
