"""The reference pages in `docs/` that are made from schemas, so that they cannot fall behind them."""

from tools.reference.resource_page import PAGES, page

__all__ = ["PAGES", "page"]
