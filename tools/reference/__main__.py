"""`python -m tools.reference`: write the generated pages of `docs/`."""

from tools.reference.resource_page import DOCS, PAGES, page

for name in PAGES:
    path = DOCS / name
    path.write_text(page(name), encoding="utf-8")
    print(path.relative_to(DOCS.parent))
