"""The reference pages say what the schemas say."""

import pytest

from tools.reference import PAGES, page
from tools.reference.life_cycle import PAGE, life_cycle_page
from tools.reference.operations_table import PAGE as OPERATIONS_PAGE
from tools.reference.operations_table import with_table
from tools.reference.resource_page import DOCS


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_what_its_schema_gives(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == page(name), "run `make generate`"


def test_the_page_of_inferencemodel_names_ranges_defaults_and_rules() -> None:
    text = page("inferencemodel.md")
    assert "| `batching.maxBatchSize` | integer, 4 to 128 | `32` |" in text
    assert "| `versions[].uri` |" in text
    assert "weights that sum to 100" in text


def test_the_page_of_the_life_cycle_is_what_its_table_gives() -> None:
    assert PAGE.read_text(encoding="utf-8") == life_cycle_page(), "run `make generate`"


def test_the_table_of_operations_is_what_the_contract_gives() -> None:
    text = OPERATIONS_PAGE.read_text(encoding="utf-8")
    assert text == with_table(text), "run `make generate`"
    assert "| `POST /v1/infer` | `InferenceService/Infer` | `InferRequest` | 200 `InferResponse` |" in text
