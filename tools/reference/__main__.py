"""`python -m tools.reference`: write the generated pages of `docs/`."""

from tools.reference.life_cycle import CRD, PAGE, life_cycle_page, with_rules
from tools.reference.operations_table import PAGE as OPERATIONS_PAGE
from tools.reference.operations_table import with_table
from tools.reference.resource_page import DOCS, PAGES, page

CRD.write_text(with_rules(CRD.read_text(encoding="utf-8")), encoding="utf-8")
PAGE.write_text(life_cycle_page(), encoding="utf-8")
print(PAGE.relative_to(DOCS.parent))
OPERATIONS_PAGE.write_text(with_table(OPERATIONS_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
print(OPERATIONS_PAGE.relative_to(DOCS.parent))
for name in PAGES:
    path = DOCS / name
    path.write_text(page(name), encoding="utf-8")
    print(path.relative_to(DOCS.parent))
